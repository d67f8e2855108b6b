"""An answer before a body has come ends the connection: nothing is read to be thrown away."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass
class ClosingUnread:
    """An application whose answers close connections that still send.

    Servers of ASGI read the rest of a body else, however long it is.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        names = {name.lower() for name, value in scope["headers"] if value != b"0"}
        is_left = bool(names & {b"content-length", b"transfer-encoding"})

        async def receiving() -> Message:
            nonlocal is_left
            message = await receive()
            is_left = bool(message.get("more_body"))
            return message

        async def sending(message: Message) -> None:
            if is_left and message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        await self.app(scope, receiving, sending)
