"""What a kernel is to numba: a C callback void(int64* block), stopped before its machine code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import compiler, typed_passes, untyped_passes
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.cpu import CPUContext
from numba.core.datamodel import models, registry
from numba.core.registry import cpu_target
from numba.core.typing import mathdecl
from numba.core.typing.context import Context

from bucketize.kernel.codegen import machine
from bucketize.kernel.emit.module import Generated
from bucketize.machine.target import Processor

BLOCK = types.CPointer(types.int64)  # type: ignore[no-untyped-call]
NUMBA: Any = compiler


class _Library(JITCodeLibrary):
    """LLVM IR that is optimised as a whole, and not given to numba's own engine."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def module(self) -> llvm.ModuleRef:
        """The IR, when it is whole."""
        return self._final_module


class _Codegen(JITCPUCodegen):
    """LLVM's view of a processor, which need not be this one, is that of `kernel.codegen`.

    Numba's engine, which runs nothing here, is left out.
    """

    _library_class = _Library

    def __init__(self, wanted: Processor) -> None:
        self._wanted = wanted
        super().__init__("bucketize")  # type: ignore[no-untyped-call]

    def _init(self, _module: Any) -> None:
        self._tm = machine(self._wanted)
        self._target_data = self._tm.target_data
        self._data_layout = str(self._target_data)
        self._loopvect, self._opt_level = False, 0

    def _create_empty_module(self, name: str) -> Any:
        module: Any = super()._create_empty_module(name)  # type: ignore[no-untyped-call]
        module.triple = self._wanted.code_triple
        return module


class _Function(types.Function):
    """A function's signatures, each looked for once: lowering asks again what typing was told."""

    def __init__(self, templates: Any) -> None:
        self._signatures: dict[Any, Any] = {}
        super().__init__(templates)

    def augment(self, other: Any) -> Any:
        """With what another file of numba's adds to it."""
        return type(self)(self.templates + other.templates)

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """The signature of a call."""
        key = tuple(args), tuple(sorted(kws.items()))
        if key not in self._signatures:
            self._signatures[key] = super().get_call_type(context, args, kws)
        return self._signatures[key]


registry.register_default(_Function)(models.OpaqueModel)


class _Typing(Context):
    """Python's operators and `math`; of numba's own, NumPy's functions are tried before them."""

    def load_additional_registries(self) -> None:
        self.install_registry(mathdecl.registry)  # type: ignore[no-untyped-call]

    def _insert_global(self, gv: Any, gty: Any) -> None:
        its = _Function(gty.templates) if type(gty) is types.Function else gty
        super()._insert_global(gv, its)  # type: ignore[no-untyped-call]


class _Context(CPUContext):
    """Numba's, with less to write for each kernel."""

    def __init__(self) -> None:
        self._sizes: dict[Any, int] = {}
        super().__init__(_Typing(), target="cpu")  # type: ignore[no-untyped-call]

    def get_abi_sizeof(self, ty: Any) -> int:
        """The bytes of a type, for which LLVM parses a module; alike on all processors served."""
        if ty not in self._sizes:
            self._sizes[ty] = super().get_abi_sizeof(ty)  # type: ignore[no-untyped-call]
        return self._sizes[ty]

    def create_cfunc_wrapper(self, library: Any, fndesc: Any, _env: Any, _call_helper: Any) -> None:
        """The C callback; one that could raise would ask for a function that nobody has."""
        module = self.create_module("cfunc_wrapper")  # type: ignore[no-untyped-call]
        type_of = self.call_conv.get_function_type(fndesc.restype, fndesc.argtypes)
        kernel = ir.Function(module, type_of, fndesc.llvm_func_name)
        entry_type = ir.FunctionType(ir.VoidType(), kernel.function_type.args[2:])
        callback = ir.Function(module, entry_type, fndesc.llvm_cfunc_wrapper_name)
        builder = ir.IRBuilder(callback.append_basic_block("entry"))
        status, _ = self.call_conv.call_function(
            builder, kernel, fndesc.restype, fndesc.argtypes, callback.args, attrs=("noinline",)
        )
        with builder.if_then(status.is_error, likely=False):
            raised = ir.FunctionType(ir.VoidType(), ())
            builder.call(ir.Function(module, raised, "a_kernel_raised"), ())
        builder.ret_void()
        library.add_ir_module(module)


@cache
def _context() -> Any:
    return _Context()


@cache
def _context_for(wanted: Processor) -> Any:
    return _context().subtarget(_internal_codegen=_Codegen(wanted))


PASSES = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.NativeLowering,
    typed_passes.NoPythonBackend,
)


class _Compiler(compiler.CompilerBase):
    """Numba without the passes that closures, arrays and exceptions need: loop source has none.

    Nor is it told where a variable is read last, which matters to references that are counted.
    """

    def define_pipelines(self) -> list[Any]:
        manager: Any = PassManager("loops")  # type: ignore[no-untyped-call]
        for its in PASSES:
            manager.add_pass(its, its.__name__)
        manager.finalize()
        return [manager]


def entry(function: Callable[[Any], None]) -> Generated:
    """Decorates a kernel.

    `numba.cfunc` would optimise each function by itself before, for a sixth of the time to no
    effect, and make machine code, which `kernel.codegen` makes.
    """
    return partial(_generated, function)


def _generated(function: Callable[[Any], None], wanted: Processor) -> tuple[llvm.ModuleRef, str]:
    target: Any = cpu_target
    context, flags = _context_for(wanted), NUMBA.Flags()
    target.options.parse_as_flags(flags, {"nopython": True, "error_model": "numpy"})
    flags.no_cpython_wrapper = True
    flags.nrt = False  # nor counted references
    flags.no_compile = True  # the wrapper is still to come
    library: Any = context.codegen().create_library(function.__qualname__)
    with global_compiler_lock:
        typing: Any = context.typing_context
        code = NUMBA.compile_extra(
            typing, context, function, (BLOCK,), types.void, flags, {}, library, _Compiler
        )
        library.finalize()
    return library.module, code.fndesc.llvm_cfunc_wrapper_name
