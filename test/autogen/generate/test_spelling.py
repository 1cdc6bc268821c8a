"""Names of headers in generated modules: the module imports and its structs work, whatever names the header uses."""

import importlib.util
import sys

import pytest

from ringup.autogen.generate.c.clang import parse
from ringup.autogen.generate.emit.structs import closure, emit_module, nameable


@pytest.fixture
def generated(tmp_path):
    """`generated(c_text)` imports the module of a header and returns it, with the names that were refused."""

    def make(text):
        header = tmp_path / "odd.h"
        header.write_text(text)
        unit = parse([header])
        structs, constants, refused = nameable(closure(unit, unit.structs), list(unit.constants.values()))
        path = tmp_path / "ringup_test_odd.py"
        path.write_text(emit_module("Odd.", "odd.h", structs, constants))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module, {row.name: row.reason for row in refused}

    yield make
    sys.modules.pop("ringup_test_odd", None)


@pytest.mark.parametrize("name", ["u8", "u16", "u32", "u64", "i8", "i64", "f32", "f64", "bool", "ptr"])
def test_a_struct_called_as_a_scalar_of_layouts_keeps_its_own_layout(name, generated):
    module, refused = generated(
        f"struct {name} {{ int a, b, c; }}; struct outer {{ char first; struct {name} inside[2]; }};"
    )
    outer = module.outer()
    outer.inside[1].c = -7
    assert (module.outer.SIZE, module.outer.offset_of("inside"), refused) == (28, 4, {})
    assert outer.inside[1].c == -7
    assert getattr(module, f"{name}_").SIZE == 12


@pytest.mark.parametrize(
    "name",
    ["None", "class", "view", "at", "pack", "Struct", "Array", "bytes", "annotations", "BRANCHES", "u128", "__name__"],
)
def test_a_nested_struct_works_whatever_its_name(name, generated):
    module, refused = generated(
        f"struct {name} {{ int a; }}; struct outer {{ struct {name} x; char text[4]; int rows[2]; }};"
    )
    outer = module.outer(text=b"abcd")
    outer.x.a = 5
    assert (outer.x.a, b"".join(outer.text), module.outer.SIZE, refused) == (5, b"abcd", 16, {})


def test_constants_keep_their_value_beside_structs_of_their_name(generated):
    module, refused = generated(
        "struct foo { int a; };\n#define Struct 5\n#define foo 3\nenum { bar = 4 }; struct bar { int b; };"
    )
    assert (module.Struct_, module.foo_, module.foo.SIZE, module.bar_, module.bar.SIZE) == (5, 3, 4, 4, 4)
    assert refused == {}


def test_what_python_cannot_name_is_listed(generated):
    module, refused = generated(
        "#define A$B 1\n#define A 2\nstruct a$b { int a; }; struct holds { struct a$b x; }; struct member { int a$b; };"
        "struct twice { int class, class_; }; struct None { int a; }; struct None_ { int b; };"
    )
    assert (module.A, module.None_.members().keys()) == (2, {"a"})
    assert refused == {
        "A$B": "its name is none in Python",
        "a$b": "its name is none in Python",
        "holds": "member x: a$b was refused",
        "member": "the name of member a$b is none in Python",
        "twice": "two members are class_ in Python",
        "None_": "None_ is also from odd.h:3",
    }
