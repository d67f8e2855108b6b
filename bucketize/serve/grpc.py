"""The server by gRPC: the service of the Open Inference Protocol, version 2, beside health.

`inference.proto` has its messages. They stand in a pool of their own: tritonclient and KServe bring
messages of the same names, which one pool would refuse.
Source: https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_grpc.md
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from bucketize.errors import ArgumentError
from bucketize.op import Value
from bucketize.release import release
from bucketize.serve.model import ServedModel
from bucketize.serve.protocol import (
    COPIED,
    DATATYPES,
    EXTENSIONS,
    InferRequest,
    InputTensor,
    checked_shape,
    fed,
    metadata,
    tensor_of,
    work_to_read,
    work_to_write,
)
from bucketize.serve.refusal import BusyError, status_of, text_of
from bucketize.serve.server import LOGGER, LOOKED_S, Server
from bucketize.types import TensorType

Message: TypeAlias = Any
Method: TypeAlias = Callable[[Message], Awaitable[Message]]
SERVICE = "inference.GRPCInferenceService"
GRACE_S = 30  # for answers that are on their way when it ends
CODES: Mapping[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
}
"""By the status of HTTP. A message that is too large is refused by gRPC, before it is read."""
LONGEST = (1 << 31) - 1  # bytes of any message
MOST_TEXT = 4096  # bytes of an error's text, of the 8 KiB that clients take
RETRY = "grpc-retry-pushback-ms"
"""Metadata that tell after how many milliseconds to ask again; clients with a retry policy do."""
CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
"""The list that has a datatype's elements; FP16 and BF16 have none."""


def _messages() -> tuple[DescriptorPool, dict[str, type[Any]]]:
    """The pool, and the messages of the protocol by their names."""
    pool = DescriptorPool()
    files = FileDescriptorSet.FromString(Path(__file__).with_name("inference.binpb").read_bytes())
    (file,) = files.file
    pool.Add(file)
    kinds = pool.FindFileByName(file.name).message_types_by_name
    return pool, {name: GetMessageClass(kind) for name, kind in kinds.items()}


POOL, MESSAGES = _messages()


class Rpc:
    """A server's service of gRPC."""

    def __init__(
        self, server: Server, address: str, tell: Callable[[int], None] = lambda _: None
    ) -> None:
        """Nothing listens yet.

        Args:
            server: what answers.
            address: where it shall listen, host and port.
            tell: is called with the port, once it listens.

        """
        self.server, self._address, self._tell = server, address, tell

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen for as long as this lasts; then what waits is answered."""
        most = min(self.server.most_bytes, LONGEST)
        options = [("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", -1)]
        rpc = grpc.aio.server(options=[*options, ("grpc.so_reuseport", 0)])
        rpc.add_generic_rpc_handlers((self._handlers(),))
        healthy = health.aio.HealthServicer()
        await self._tell_health(healthy)
        health_pb2_grpc.add_HealthServicer_to_server(healthy, rpc)
        reflection.enable_server_reflection((SERVICE, reflection.SERVICE_NAME), rpc, POOL)
        self._tell(rpc.add_insecure_port(self._address))
        await rpc.start()
        telling = asyncio.create_task(self._keep_health(healthy))
        yield
        telling.cancel()
        await healthy.enter_graceful_shutdown()
        await rpc.stop(GRACE_S)

    async def _tell_health(self, healthy: Any) -> None:
        status = health_pb2.HealthCheckResponse
        its = status.SERVING if self.server.is_ready() else status.NOT_SERVING
        for service in ("", SERVICE):
            await healthy.set(service, its)

    async def _keep_health(self, healthy: Any) -> None:
        """Tell it again and again: of what changes it some is in other threads."""
        while True:
            await asyncio.sleep(LOOKED_S)
            await self._tell_health(healthy)

    def _handlers(self) -> grpc.GenericRpcHandler:
        methods: Mapping[str, Method] = {
            "ServerLive": _live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": _about,
            "ModelMetadata": self._described,
            "ModelInfer": self._infer,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                _refusing(self.server, MESSAGES[f"{name}Request"], method),
                response_serializer=MESSAGES[f"{name}Response"].SerializeToString,
            )
            for name, method in methods.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _model_ready(self, request: Message) -> Message:
        model = self.server.model(request.name, request.version)
        return MESSAGES["ModelReadyResponse"](ready=self.server.is_ready(model))

    async def _server_ready(self, _: Message) -> Message:
        return MESSAGES["ServerReadyResponse"](ready=self.server.is_ready())

    async def _described(self, request: Message) -> Message:
        model = self.server.model(request.name, request.version)
        versions = list(self.server.versions[model.name])
        told = metadata(model.name, versions, model.inputs, model.outputs)
        for tensor in (*told["inputs"], *told["outputs"]):
            del tensor["parameters"]  # the message has no room for them
        return MESSAGES["ModelMetadataResponse"](**told)

    async def _infer(self, request: Message) -> Message:
        model = self.server.model(request.model_name, request.model_version)
        with self.server.counted(model):
            return await self._inferred(model, request)

    async def _inferred(self, model: ServedModel, request: Message) -> Message:
        listed = sum(each.ByteSize() for each in request.inputs)
        work = work_to_read(request.ByteSize(), listed)
        asked = await self.server.read(work, asked_for, request, model.inputs)
        results = await self.server.results(model, asked)
        answer = MESSAGES["ModelInferResponse"](
            model_name=model.name, model_version=model.version, id=request.id
        )
        work = work_to_write(results, asked.binary)
        return await self.server.read(work, filled, answer, asked, results)


async def _live(_: Message) -> Message:
    return MESSAGES["ServerLiveResponse"](live=True)


async def _about(_: Message) -> Message:
    return MESSAGES["ServerMetadataResponse"](
        name="bucketize", version=release(), extensions=EXTENSIONS
    )


def _refusing(server: Server, kind: type[Any], method: Method) -> Any:
    """The method over bytes, with what it raises told as a status."""

    async def answer(data: bytes, context: Any) -> Message:
        try:
            with server.room.of_request() as take:
                take(len(data))
                return await method(await server.read(len(data) // COPIED, parsed, kind, data))
        except Exception as e:
            await _refuse(context, e)

    return answer


async def _refuse(context: Any, error: Exception) -> None:
    code = CODES[status_of(error)]
    if code is grpc.StatusCode.INTERNAL:
        LOGGER.error("gRPC: %r", error)
    retry = math.ceil(error.retry_s * 1000) if isinstance(error, BusyError) else None
    trailing = () if retry is None else ((RETRY, str(retry)),)
    await context.abort(code, _short(text_of(error)), trailing)


def _short(text: str) -> str:
    """A text that metadata hold: of a longer one, gRPC would tell that it is too long."""
    return text if len(quote(text)) <= MOST_TEXT else f"{text[: MOST_TEXT // 16]} ..."


def parsed(kind: type[Any], data: bytes) -> Message:
    """A message; ArgumentError if the bytes are none."""
    try:
        return kind.FromString(data)
    except DecodeError as e:
        raise ArgumentError(f"no {kind.DESCRIPTOR.full_name}: {e}") from e


def asked_for(request: Message, types: Mapping[str, TensorType]) -> InferRequest:
    """What a message asks for; ArgumentError says what is wrong with it."""
    raw, inputs = request.raw_input_contents, request.inputs
    if raw and len(raw) != len(inputs):
        raise ArgumentError(f"raw_input_contents: of {len(inputs)} inputs, got {len(raw)}")
    pairs = zip(inputs, raw or [None] * len(inputs), strict=True)
    feed = fed([_tensor(each, data) for each, data in pairs], types)
    names = tuple(output.name for output in request.outputs)
    return InferRequest(feed, names, None if raw else frozenset(), request.id)


def _tensor(each: Message, raw: bytes | None) -> tuple[InputTensor, bytes]:
    """An input, and its bytes."""
    tensor = InputTensor(each.name, each.datatype, checked_shape(each.shape), None, len(raw or b""))
    has_contents = each.contents.ByteSize() > 0
    if raw is not None:
        if has_contents:
            raise ArgumentError(f"input {each.name!r} has contents and raw_input_contents")
        return tensor, raw
    if each.datatype in DATATYPES and each.datatype not in CONTENTS:
        raise ArgumentError(f"input {each.name!r}: {each.datatype} goes in raw_input_contents")
    field = CONTENTS.get(each.datatype)
    return replace(tensor, data=list(getattr(each.contents, field)) if field else []), b""


def filled(answer: Message, request: InferRequest, results: Mapping[str, Value]) -> Message:
    """An answer with its outputs: raw if the request was, or has to be."""
    named = {name: tensor_of(name, results[name]) for name in request.outputs or results}
    is_raw = request.binary is None or any(t not in CONTENTS for t, _ in named.values())
    for name, (datatype, array) in named.items():
        output = answer.outputs.add(name=name, datatype=datatype, shape=array.shape)
        if is_raw:
            answer.raw_output_contents.append(array.tobytes())
        else:
            getattr(output.contents, CONTENTS[datatype]).extend(array.reshape(-1).tolist())
    return answer
