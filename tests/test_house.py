"""The rules of the house, read off the source: who imports whom, who touches the disk."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BELOW = {
    "files": (),
    "manifest": ("files",),
    "actors": ("manifest", "files"),
    "pipeline": ("manifest", "files"),
    "api": ("actors", "manifest", "files"),
}
"""Room: the rooms below it, which are all that it may import."""

UPWARD = {
    ("api/published.py", "pipeline"),
    ("api/cli/pipeline.py", "pipeline"),
    ("api/cli/pipeline_tour.py", "pipeline"),
    ("pipeline/commit.py", "api"),
}
"""(module, room): imports that go up, made in a function when they are needed. What an executor
runs is in none of them, but for what the tour folds with."""

SHELVES: dict[str, dict[str, tuple[str, ...]]] = {
    "files": {
        "door": (),
        "kernels": ("door",),
        "ledger": ("door", "kernels"),
        "journal": ("door", "kernels", "ledger"),
        "jobs": ("door", "kernels", "ledger", "journal"),
        "handover": ("door", "kernels", "ledger", "journal"),
    },
    "actors": {
        "turns": (),
        "writing": ("turns",),
        "reading": ("turns",),
        "scanning": ("turns", "reading"),
        "compacting": ("turns",),
        "opening": ("turns", "writing", "reading", "compacting"),
        "keeping": ("turns", "opening", "compacting"),
    },
    "api": {"pictures": (), "cli": ("pictures",)},
}
"""Room: its shelves, and of each the shelves that it may import from. The modules that stand on
none are for all: in files/ they know of no shelf, elsewhere of any."""

TOUCHING = ("files/door/", "api/cli/")
"""What touches the disk: the door, and commands, which read and write what a person names to
them, never a file of a store."""

TOP = {
    *(".ci", ".gitignore", "CHANGELOG.md", "DESIGN.md", "LICENSE", "MANIFEST.in", "README.md"),
    *("docs", "pyproject.toml", "pyspark_octavo.py", "pyspark_octavo_metadata.py", "scripts"),
    *("tests", *BELOW),
}
"""What is kept in the repository's top level."""
MOST_KEPT_BYTES = 512 << 10
"""Of a file that is kept: more is a left-over."""

DISK_CALLS = {
    "os": {
        "open", "fsync", "fdatasync", "sync", "rename", "renames", "replace", "link",
        "symlink", "unlink", "remove", "truncate", "ftruncate", "mkdir", "makedirs", "rmdir",
        "removedirs", "pread", "pwrite", "pwritev", "posix_fallocate", "sendfile",
    },
    "io": {"open", "FileIO"},
}  # fmt: skip
DISK_MODULES = ("pathlib", "shutil", "tempfile", "fcntl")
CODE_IN_DATA = ("pickle", "_pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle")
AVOIDED = ("manager", "handler", "helper", "utils")
MOST_LINES = 450
MOST_LINES_OF_A_FUNCTION = 85


def modules(*rooms: str) -> list[Path]:
    return [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]


LIBRARY = modules(*BELOW)
ALL = LIBRARY + modules("tests", "scripts")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything that a module imports, lazily too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module or ''}.{alias.name}") for alias in node.names)
            if node.level:
                yield node.lineno, "a relative import"


def calls_of_the_disk(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in DISK_CALLS.get(node.value.id, ()):
                yield f"line {node.lineno}: {node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("open", "mmap"):
                yield f"line {node.lineno}: {node.func.id}()"
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in DISK_CALLS.get(node.module or "", ()):
                    yield f"line {node.lineno}: from {node.module} import {alias.name}"


def test_there_is_a_house() -> None:
    assert {"files/door/disk.py", "api/store.py", "actors/bookie.py"} <= set(map(named, LIBRARY))


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_a_room_imports_only_rooms_below_it(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    lazy = {
        line.lineno
        for function in ast.walk(tree(path))
        if isinstance(function, ast.FunctionDef)
        for line in ast.walk(function)
        if isinstance(line, ast.Import | ast.ImportFrom)
    }
    for line, name in imports(path):
        top, _, rest = name.partition(".")
        if top != "octavo":
            continue
        first = rest.partition(".")[0]
        other = first if first in BELOW else "api"
        if (named(path), other) in UPWARD and line in lazy:
            continue
        assert other == room or other in BELOW[room], f"{named(path)}:{line} imports {name}"


def shelf_of(room: str, name: str) -> str | None:
    """The shelf that a module, dotted from its room on, stands on."""
    first = name.partition(".")[0]
    return first if first in SHELVES.get(room, {}) else None


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_a_shelf_imports_only_from_shelves_below_it(path: Path) -> None:
    room, *inner = path.relative_to(ROOT).with_suffix("").parts
    shelf = shelf_of(room, ".".join(inner))
    if shelf is None and room != "files":
        return
    below = (shelf, *SHELVES[room][shelf]) if shelf else ()
    typing_only = {
        line.lineno
        for node in tree(path).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for line in node.body
    }
    package = "octavo." if room == "api" else f"octavo.{room}."
    for line, name in imports(path):
        other = shelf_of(room, name.removeprefix(package)) if name.startswith(package) else None
        if other is not None and line not in typing_only:
            assert other in below, f"{named(path)}:{line} imports {name}"


def test_every_folder_is_a_shelf_that_is_installed() -> None:
    folders = {
        str(path.parent.relative_to(ROOT))
        for path in LIBRARY
        if len(path.relative_to(ROOT).parts) > 2
    }
    assert folders == {f"{room}/{shelf}" for room in SHELVES for shelf in SHELVES[room]}
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {
        name.removeprefix("octavo").lstrip(".") for name in told["tool"]["setuptools"]["packages"]
    }
    assert packages == {
        folder.replace("/", ".").removeprefix("api").lstrip(".") for folder in (*BELOW, *folders)
    }


@pytest.mark.parametrize("path", ALL, ids=named)
def test_nothing_is_imported_past_the_package(path: Path) -> None:
    # With the root on sys.path `import files.disk` works, and makes a second module of it.
    for line, name in imports(path):
        assert name.partition(".")[0] not in BELOW, f"{named(path)}:{line} imports {name}"
        if path in LIBRARY:
            assert name != "a relative import", f"{named(path)}:{line}"


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_only_the_door_touches_the_disk(path: Path) -> None:
    if named(path).startswith(TOUCHING):
        return
    assert list(calls_of_the_disk(path)) == []
    for line, name in imports(path):
        assert name.partition(".")[0] not in DISK_MODULES, f"{named(path)}:{line} imports {name}"


def test_the_check_of_the_disk_has_teeth(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(
        "import os\nfrom os import rename\nopen('x')\nos.fsync(1)\nf = os.unlink\nmmap(1, 0)\n"
    )
    assert len(list(calls_of_the_disk(tmp_path / "x.py"))) == 5
    assert list(calls_of_the_disk(ROOT / "files/door/disk.py"))


@pytest.mark.parametrize("path", ALL, ids=named)
def test_nothing_reads_code_from_data(path: Path) -> None:
    for line, name in imports(path):
        assert name.partition(".")[0] not in CODE_IN_DATA, f"{named(path)}:{line} imports {name}"


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_locks_are_those_that_a_ctrl_c_leaves_free(path: Path) -> None:
    if named(path) == "files/locks.py":
        return
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            made = f"{node.value.id}.{node.attr}"
            assert made not in ("threading.Lock", "threading.RLock"), f"{named(path)}:{node.lineno}"
    imported = {name for _, name in imports(path)}
    assert "functools.cached_property" not in imported, "before 3.12 one lock for all threads"


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_nothing_is_asked_of_numpy_for_which_it_loads_a_part_of_itself(path: Path) -> None:
    """See ``distinct`` in files/kernels/arrays.py."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.unique":
            assert node.keywords, f"{named(path)}:{node.lineno}"


@pytest.mark.parametrize("path", modules("files", "manifest", "actors", "api"), ids=named)
def test_what_is_imported_within_a_call_is_imported_unbroken(path: Path) -> None:
    """A Ctrl-C in the midst of an import can leave CPython's lock of all imports taken, and a fork
    by another thread that of the module, in the child."""
    if named(path).startswith(("api/cli/", "files/jobs/worker.py")):
        return  # programs, which a Ctrl-C ends, and what begins before any thread
    found: list[int] = []

    def look(node: ast.AST, *, called: bool) -> None:
        if isinstance(node, ast.With) and ast.unparse(node).startswith("with unbroken, loading:"):
            return
        if called and isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node.lineno)
        called = called or isinstance(node, ast.FunctionDef)
        for child in ast.iter_child_nodes(node):
            look(child, called=called)

    look(tree(path), called=False)
    assert not found, f"{named(path)}: lines {found}"


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_no_buffer_may_be_taken_for_a_sequence_of_numbers(path: Path) -> None:
    # As NumPy does where it finds no memory for a moment: see array_of, which does not.
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            told = node.func.attr != "asarray" or any(one.arg == "dtype" for one in node.keywords)
            assert told, f"{named(path)}:{node.lineno}"


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_nothing_is_guarded_by_assert(path: Path) -> None:
    # Under -O it vanishes. Outside of functions it may state the sizes of a byte layout.
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for inner in ast.walk(node):
                assert not isinstance(inner, ast.Assert), f"{named(path)}:{inner.lineno}"


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_files_and_functions_stay_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= MOST_LINES_OF_A_FUNCTION, f"{named(path)}:{node.lineno} {node.name}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a clone tells what is kept")
def test_nothing_is_kept_that_has_no_place() -> None:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    kept = [Path(name) for name in done.stdout.decode().split("\0") if name]
    assert {path.parts[0] for path in kept} == TOP
    large = {path for path in kept if (ROOT / path).lstat().st_size > MOST_KEPT_BYTES}
    assert not large


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_names_say_what_things_are(path: Path) -> None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = [path.stem] + [n.name for n in ast.walk(tree(path)) if isinstance(n, kinds)]
    for name in names:
        assert not any(word in name.lower() for word in AVOIDED), f"{named(path)}: {name}"


@pytest.mark.parametrize("room", [room for room in BELOW if (ROOT / room / "__init__.py").exists()])
def test_every_room_is_typed(room: str) -> None:
    assert (ROOT / room / "py.typed").exists()


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import octavo", {"numpy", "pyarrow", "pyspark", "pykka", "rich", "click"}),
        ("from octavo import OctavoError", {"numpy", "pyarrow", "pyspark", "pykka"}),
        ("import octavo; octavo.open", {"pyarrow", "pyspark", "rich", "click"}),
        ("import octavo.cli.commands", {"numpy", "pyarrow", "pyspark", "pykka", "rich"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_import_loads_no_more_than_it_needs(statement: str, absent: set[str]) -> None:
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert set(done.stdout.decode().split()) & absent == set()


def test_a_new_store_that_is_little_used_loads_no_numpy(tmp_path: Path) -> None:
    # It is a third of what the first opening costs: see files/kernels/arrays.py.
    program = f"""
import sys, octavo
with octavo.open({str(tmp_path / "store")!r}) as store:
    store.put(b"key", b"value")
    store.put_many([(b"a", b"1"), (b"b", b"2")])
    assert store.get(b"key") == b"value" and store.head(b"a").size == 1
    assert list(store.keys()) == [b"a", b"b", b"key"]
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert "numpy" not in done.stdout.decode().split()


@pytest.mark.parametrize("path", LIBRARY, ids=named)
def test_fields_of_dataclasses_load_nothing(path: Path) -> None:
    # From 3.15 on their annotations are looked up as the class is made, up to the first bracket.
    for made in ast.walk(ast.parse(path.read_text())):
        if isinstance(made, ast.ClassDef) and "dataclass" in map(ast.unparse, decorators(made)):
            fields = [ast.unparse(f.annotation) for f in made.body if isinstance(f, ast.AnnAssign)]
            assert [each for each in fields if each.startswith(("np.", "npt."))] == []


def decorators(made: ast.ClassDef) -> list[ast.expr]:
    return [each.func if isinstance(each, ast.Call) else each for each in made.decorator_list]


def test_the_list_of_mutants_is_up_to_date() -> None:
    # scripts/campaigns/mutants.toml quotes the guards of the library, to show that tests notice
    # when one is gone. Whoever changes the text of a guard changes it there.
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/campaigns/mutants.py"), "--check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
