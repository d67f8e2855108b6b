"""Integer code: Python functions of 64-bit words, read as text and written as LLVM IR.

What numba, which finds out types, takes seconds for takes a tenth of one where there is one type.
All values are words, and so are addresses: `a[i]` is the word at address a + 8 * i. There are
assignments, `if`, `while`, `for` over a `range`, `return`, floats inside a condition, and calls:
of functions of such files, which are inlined, and of those of `word.py`.

The words of a block have names where an annotation says whose, an `IntEnum` of their places: with
`a: NAMES`, of a parameter or a variable, or a function that returns NAMES, `a.x` is the word called
x, `a[i].x` that of row i, and `a[i]` is an error. `NAMES.x` is a place, `len(NAMES)` their number.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from bucketize.errors import KernelError
from bucketize.kernel.emit import word
from bucketize.kernel.emit.expression import RELATION
from bucketize.kernel.emit.module import Generated, module_text, optimised
from bucketize.kernel.emit.writer import BIT, WORD, WORD_BYTES, WordWriter
from bucketize.machine.target import Processor

DOUBLE = ir.DoubleType()
INTEGER = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and_"}
FLOATING = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul"}


def entry(function: Callable[[Any], None]) -> Generated:
    """Decorates a kernel of integer code, void(int64* block).

    It raises KernelError where the code is more than what this module knows.
    """
    file = _File(function)

    def body(w: WordWriter, block: ir.Value) -> None:
        kernel = file.function(w.module, function.__name__)
        w.builder.call(kernel, [w.builder.ptrtoint(block, WORD)])

    def generated(wanted: Processor) -> tuple[llvm.ModuleRef, str]:
        name = function.__module__
        return optimised(module_text(name, body, wanted.code_triple), wanted), name

    return generated


def functions_text(functions: Mapping[str, Callable[..., Any]], triple: str) -> str:
    """The IR of functions of words for callers of C, who call them by these names."""
    module = ir.Module("functions")
    module.triple = triple
    for name, function in functions.items():
        inner = _File(function).function(module, function.__name__)
        outer = ir.Function(module, inner.ftype, name)
        builder = ir.IRBuilder(outer.append_basic_block())
        builder.ret(builder.call(inner, outer.args))
    return str(module)


class _File:
    """The functions of a file."""

    def __init__(self, function: Callable[..., Any]) -> None:
        tree = ast.parse(Path(function.__code__.co_filename).read_text())
        self.known: Mapping[str, Any] = function.__globals__
        self.texts = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}

    def function(self, module: ir.Module, name: str) -> ir.Function:
        """The function of words with this name, whose result is a word, too; written once."""
        code = module.globals.get(name)
        if code is None and name not in self.texts:
            return _File(self.known[name]).function(module, name)
        if code is None:
            text = self.texts[name]
            kind = ir.FunctionType(WORD, [WORD] * len(text.args.args))
            code = ir.Function(module, kind, name)
            code.linkage = "internal"
            code.attributes.add("alwaysinline")
            _Body(self, code, _WordNames(self).visit(text))
        return code

    def names(self, node: ast.expr | None) -> type[IntEnum] | None:
        """The names of words that an expression is."""
        value = self.known.get(node.id) if isinstance(node, ast.Name) else None
        return value if isinstance(value, type) and issubclass(value, IntEnum) else None


class _WordNames(ast.NodeTransformer):
    """Gives names of words up for their places: `a.x` for `a[3]`, `a[i].x` for `a[5 * i + 3]`."""

    def __init__(self, file: _File) -> None:
        self.file = file
        self.known: dict[str, type[IntEnum] | None] = {}
        """The names of the words that lie at the addresses that variables are."""

    def names(self, node: ast.expr) -> type[IntEnum] | None:
        """The names of the words at an address."""
        if isinstance(node, ast.Call):
            text = self.file.texts.get(ast.unparse(node.func))
            return None if text is None else self.file.names(text.returns)
        return self.known.get(node.id) if isinstance(node, ast.Name) else None

    def visit_arg(self, node: ast.arg) -> ast.arg:
        self.known[node.arg] = self.file.names(node.annotation)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        names = self.file.names(node.annotation)
        if names is None or node.value is None or not isinstance(node.target, ast.Name):
            raise _unknown(node)
        plain = ast.copy_location(ast.Assign([node.target], node.value), node)
        self.visit_Assign(plain)
        self.known[node.target.id] = names
        return plain

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        pairs = [(target, self.names(value)) for target, value in _pairs(node)]
        self.known |= {target.id: names for target, names in pairs if isinstance(target, ast.Name)}
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if self.names(node.value):
            raise _unknown(node)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if names := self.file.names(node.value):
            return _place(names, node)
        row = node.value if isinstance(node.value, ast.Subscript) else None
        block = row.value if row else node.value
        names = self.names(block)
        if names is None:
            raise _unknown(node)
        index: ast.expr = _place(names, node)
        if row:
            first = ast.BinOp(ast.Constant(len(names)), ast.Mult(), self.visit(row.slice))
            index = ast.BinOp(first, ast.Add(), index)
        return ast.copy_location(ast.Subscript(self.visit(block), index), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        names = self.file.names(node.args[0]) if ast.unparse(node.func) == "len" else None
        return ast.Constant(len(names)) if names else self.generic_visit(node)


def _place(names: type[IntEnum], node: ast.Attribute) -> ast.Constant:
    if node.attr not in names.__members__:
        members = ", ".join(names.__members__)
        raise KernelError(f"line {node.lineno}: {names.__name__} has {members}, not {node.attr!r}")
    return ast.Constant(names[node.attr].value)


def _pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """What is assigned, and its value, one by one."""
    (target,) = node.targets
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        return list(zip(target.elts, node.value.elts, strict=True))
    return [(target, node.value)]


class _Body:
    """What a function does, written into it."""

    def __init__(self, file: _File, function: ir.Function, text: ast.FunctionDef) -> None:
        self.file = file
        self.b = ir.IRBuilder(function.append_basic_block())
        self.w = WordWriter(self.b)
        self.places: dict[str, ir.Value] = {}
        for argument, value in zip(text.args.args, function.args, strict=True):
            self.b.store(value, self.place(argument.arg))
        self.statements(text.body)
        self.b.ret(self.w.word(0))

    def place(self, name: str) -> ir.Value:
        """Where a variable is kept, until LLVM finds a register for it."""
        if name not in self.places:
            with self.b.goto_entry_block():
                self.places[name] = self.b.alloca(WORD)
        return self.places[name]

    # --- statements ------------------------------------------------------------------------------

    def statements(self, nodes: list[ast.stmt]) -> None:
        """Write them one after the other."""
        for node in nodes:
            self.written(node)

    def written(self, node: ast.AST) -> Any:
        """Write a piece of code by the method of its kind; the value that it has, if it has one."""
        write = getattr(self, f"write_{type(node).__name__.lower()}", None)
        if write is None:
            raise _unknown(node)
        return write(node)

    def write_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def write_assign(self, node: ast.Assign) -> None:
        pairs = [(target, self.word(value)) for target, value in _pairs(node)]
        for target, value in pairs:
            self.assign(target, value)

    def write_augassign(self, node: ast.AugAssign) -> None:
        was = self.b.load(self.target(node.target), typ=WORD)
        self.assign(node.target, self.combined(node, was, self.word(node.value)))

    def assign(self, target: ast.expr, value: ir.Value) -> None:
        """Give a variable, or a word of memory, its value."""
        self.b.store(value, self.target(target))

    def target(self, node: ast.expr) -> ir.Value:
        """Where a variable, or a word of memory, is."""
        if isinstance(node, ast.Name):
            return self.place(node.id)
        if not isinstance(node, ast.Subscript):
            raise _unknown(node)
        base, index = self.word(node.value), self.word(node.slice)
        return self.w.item(self.w.pointer(base), index, WORD_BYTES)

    def write_if(self, node: ast.If) -> None:
        then, orelse = (partial(self.statements, nodes) for nodes in (node.body, node.orelse))
        self.w.when(self.truth(node.test), then, orelse if node.orelse else None)

    def write_while(self, node: ast.While) -> None:
        b = self.b
        head, inside, after = (b.append_basic_block(n) for n in ("while", "loop", "done"))
        b.branch(head)
        b.position_at_end(head)
        b.cbranch(self.truth(node.test), inside, after)
        b.position_at_end(inside)
        self.statements(node.body)
        b.branch(head)
        b.position_at_end(after)

    def write_for(self, node: ast.For) -> None:
        if not (isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range"):
            raise _unknown(node.iter)
        *first, stop = (self.word(a) for a in node.iter.args)

        def turn(index: ir.Value, _: object) -> None:
            self.assign(node.target, index)
            self.statements(node.body)

        self.w.loop(first[0] if first else 0, stop, turn)

    def write_return(self, node: ast.Return) -> None:
        self.b.ret(self.w.word(0) if node.value is None else self.word(node.value))
        self.b.position_at_end(self.b.append_basic_block("behind"))  # nothing comes here

    # --- expressions -----------------------------------------------------------------------------

    def value(self, node: ast.expr) -> ir.Value:
        """The value of an expression: a word, a truth of one bit, or a float."""
        return self.written(node)

    def word(self, node: ast.expr) -> ir.Value:
        """A value as a word; truths are 0 and 1."""
        value = self.value(node)
        if value.type == DOUBLE:
            raise _unknown(node)
        return self.b.zext(value, WORD) if value.type == BIT else value

    def truth(self, node: ast.expr) -> ir.Value:
        """Whether a value is not 0."""
        value = self.value(node)
        return value if value.type == BIT else self.w.compare(value, "!=", 0)

    def write_constant(self, node: ast.Constant) -> ir.Value:
        return _number(node.value, node)

    def write_name(self, node: ast.Name) -> ir.Value:
        if node.id in self.places:
            return self.b.load(self.places[node.id], typ=WORD)
        return _number(self.file.known.get(node.id), node)

    def write_subscript(self, node: ast.Subscript) -> ir.Value:
        return self.b.load(self.target(node), typ=WORD, align=WORD_BYTES)

    def write_binop(self, node: ast.BinOp) -> ir.Value:
        return self.combined(node, self.value(node.left), self.value(node.right))

    def combined(self, node: ast.BinOp | ast.AugAssign, x: ir.Value, y: ir.Value) -> ir.Value:
        """What the operator of `node` makes of two values."""
        if isinstance(node.op, ast.FloorDiv | ast.Mod):
            quotient = word.quotient(self.w, x, y)
            is_rest = isinstance(node.op, ast.Mod)
            return self.b.sub(x, self.b.mul(quotient, y)) if is_rest else quotient
        names = FLOATING if x.type == DOUBLE else INTEGER
        if type(node.op) not in names:
            raise _unknown(node.op, node)
        return getattr(self.b, names[type(node.op)])(x, y)

    def write_unaryop(self, node: ast.UnaryOp) -> ir.Value:
        if isinstance(node.op, ast.Not):
            return self.b.not_(self.truth(node.operand))
        if not isinstance(node.op, ast.USub):
            raise _unknown(node.op, node)
        return self.b.neg(self.word(node.operand))

    def write_compare(self, node: ast.Compare) -> ir.Value:
        relation = RELATION.get(type(node.ops[0]))
        if relation is None or len(node.ops) > 1:
            raise _unknown(node)
        x, y = self.value(node.left), self.value(node.comparators[0])
        if x.type == DOUBLE:
            return self.b.fcmp_ordered(relation, x, y)
        return self.w.compare(x, relation, y)

    def write_boolop(self, node: ast.BoolOp) -> ir.Value:
        """The next one is computed only where those before it do not tell."""
        first, *rest = node.values
        so_far = self.truth(first)
        for following in rest:
            ends, before = self.b.append_basic_block("told"), self.b.block
            more = self.b.append_basic_block("more")
            goes_on = (more, ends) if isinstance(node.op, ast.And) else (ends, more)
            self.b.cbranch(so_far, *goes_on)
            self.b.position_at_end(more)
            value = self.truth(following)
            incoming = (so_far, before), (value, self.b.block)
            self.b.branch(ends)
            self.b.position_at_end(ends)
            so_far = self.w.phi(*incoming)
        return so_far

    def write_ifexp(self, node: ast.IfExp) -> ir.Value:
        with self.b.goto_entry_block():
            place = self.b.alloca(WORD)
        with self.b.if_else(self.truth(node.test)) as branches:
            for branch, chosen in zip(branches, (node.body, node.orelse), strict=True):
                with branch:
                    self.b.store(self.word(chosen), place)
        return self.b.load(place, typ=WORD)

    def write_call(self, node: ast.Call) -> ir.Value:
        name = ast.unparse(node.func)
        if name == chosen.__name__:
            return self.value(_choice(node, self.file.known))
        if name == "float":
            (x,) = map(self.word, node.args)
            return self.b.sitofp(x, DOUBLE)
        if name == "abs":
            return self.w.intrinsic("fabs", *map(self.value, node.args))
        arguments = [self.word(a) for a in node.args]
        function: Any = self.file.known.get(name)
        if getattr(function, "__module__", None) == word.__name__:
            return function(self.w, *arguments)
        if not isinstance(function, FunctionType):
            raise _unknown(node.func)
        return self.b.call(self.file.function(self.w.module, name), arguments)


def chosen(number: int, texts: Sequence[str], *variables: int) -> int:
    """In integer code: the value of one of several expressions over some variables."""
    raise KernelError(f"{texts[number]} of {variables}: only integer code computes it")


def _choice(node: ast.Call, variables: Mapping[str, Any]) -> ast.expr:
    number, table, *_ = node.args
    choice: ast.expr
    *others, choice = (ast.parse(text, mode="eval").body for text in variables[ast.unparse(table)])
    for i, text in reversed(list(enumerate(others))):
        choice = ast.IfExp(ast.Compare(number, [ast.Eq()], [ast.Constant(i)]), text, choice)
    return choice


def _number(value: object, node: ast.expr) -> ir.Value:
    if isinstance(value, float):
        return ir.Constant(DOUBLE, value)
    if not isinstance(value, int):
        raise _unknown(node)
    return ir.Constant(WORD, int(value))


def _unknown(node: ast.AST, where: ast.AST | None = None) -> KernelError:
    """The error of a part of the code that is nothing that integer code has."""
    shown = ast.unparse(node) or type(node).__name__
    line = getattr(where or node, "lineno", 0)
    return KernelError(f"line {line}: integer code has no {type(node).__name__} as {shown!r}")
