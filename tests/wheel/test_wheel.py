"""What users get: the wheel, built offline, holds exactly the package and its scripts, and works far from here.

The wheel goes into an empty environment with nothing but the packages it declares (and what those declare), so an
import that only works because of a test tool fails here. Those are linked from the environment the suite runs in:
no index is asked.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import BytesParser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts" / "lua"

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(300)]

# Active from the moment the package has the code in question.
needs_scripts = pytest.mark.skipif(not (ROOT / "delayq/redis/scripts.py").exists(), reason="no script loader yet")
needs_cli = pytest.mark.skipif(not (ROOT / "delayq/cli").exists(), reason="no command line yet")


def run(*command: str | Path, cwd: Path, timeout: int = 120, **env: str) -> str:
    """Run to the end, away from the checkout: no PYTHONPATH, DELAYQ_* or XDG_* of this shell gets through."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DELAYQ_", "XDG_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the source archive: what is missing there is missing in the wheel."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (wheel,) = out.glob("*.whl")
    return wheel


def declared(wheel: Path, extras: set[str]) -> Iterator[str]:
    """Names of the distributions this wheel asks for with these extras, and what they ask for in turn."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        requires = BytesParser().parsebytes(archive.read(name)).get_all("Requires-Dist", [])
    todo = [(text, extra) for text in requires for extra in extras | {""}]
    seen: set[tuple[str, str]] = set()
    while todo:
        text, extra = todo.pop()
        row = Requirement(text)
        if row.marker is not None and not row.marker.evaluate({"extra": extra}):
            continue
        if row.name == "delayq":
            todo += [(text, extra) for text in requires for extra in row.extras]
            continue
        for wanted in {"", *row.extras}:
            if (row.name, wanted) not in seen:
                seen.add((row.name, wanted))
                todo += [(text, wanted) for text in metadata.requires(row.name) or []]
    yield from sorted({name for name, _ in seen})


def link_distribution(name: str, site: Path) -> None:
    """Show one installed distribution, and no other, to another environment."""
    found = metadata.distribution(name)
    for top in {file.parts[0] for file in found.files or [] if file.parts[0] not in {"..", "__pycache__"}}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(found.locate_file(top))))


def install(wheel: Path, home: Path, extras: set[str]) -> Path:
    """An empty environment at `home` with the wheel and what it declares; returns its bin directory."""
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    python = home / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=home)
    for name in declared(wheel, extras):
        link_distribution(name, site)
    return python.parent


def test_the_wheel_holds_the_package_and_its_scripts_and_nothing_else(built: Path) -> None:
    pages = [path for kind in ("html", "css", "js", "svg") for path in (ROOT / "delayq" / "http").rglob(f"*.{kind}")]
    modules = [*(ROOT / "delayq").rglob("*.py"), ROOT / "delayq" / "py.typed", *pages]
    expected = {path.relative_to(ROOT).as_posix() for path in modules}
    expected |= {f"delayq/lua/{path.relative_to(SCRIPTS).as_posix()}" for path in SCRIPTS.rglob("*.lua")}
    info = "-".join(built.name.split("-")[:2]) + ".dist-info"
    expected |= {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
    assert sorted(names) == sorted(expected)


def test_it_brings_the_command_and_the_pytest_plugin(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        [file] = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        lines = archive.read(file).decode().split("\n")
    assert lines[lines.index("[console_scripts]") + 1] == "delayq = delayq.cli:main"
    assert lines[lines.index("[pytest11]") + 1] == "delayq = delayq.testing.plugin"


@needs_scripts
def test_there_are_scripts_to_ship() -> None:
    assert {"schedule.lua", "promote.lua", "ack.lua", "reclaim.lua"} <= {path.name for path in SCRIPTS.iterdir()}


def test_every_module_imports_with_the_declared_packages_alone(built: Path, tmp_path: Path) -> None:
    """From `/`, so that nothing of the checkout is in reach. `__main__` would run the program; only pytest reads the
    plugin, so that it may ask for pytest; bridges, drivers and the outbox may ask for what they lead to. Nobody else.
    """
    home = tmp_path / "elsewhere"
    python = install(built, home, extras=set()) / "python"
    program = (
        "import importlib, pkgutil, delayq\n"
        "for module in pkgutil.walk_packages(delayq.__path__, 'delayq.'):\n"
        "    try:\n"
        "        module.name.endswith('__main__') or importlib.import_module(module.name)\n"
        "    except Exception as told:\n"
        "        error = told.__cause__ or told\n"
        "        assert isinstance(error, ModuleNotFoundError), error\n"
        "        asks = {'plugin': ['pytest'], 'outbox': ['sqlalchemy']}\n"
        "        asks |= {'contrib': ['sqlalchemy', 'django', 'opentelemetry']}\n"
        "        asks |= {'beanstalkd': ['greenstalk'], 'sqs': ['boto3', 'botocore'], 'database': ['sqlalchemy']}\n"
        "        asks |= {'http': ['fastapi', 'starlette', 'uvicorn', 'jinja2'], 'metrics': ['prometheus_client']}\n"
        "        assert any(error.name in asks.get(part, ()) for part in module.name.split('.')), error\n"
        "print(delayq.__file__)"
    )
    where = Path(run(python, "-c", program, cwd=Path("/")).strip())
    assert where.is_relative_to(home)


@needs_scripts
def test_the_installed_scripts_are_those_of_the_repository(built: Path, tmp_path: Path) -> None:
    python = install(built, tmp_path / "elsewhere", extras=set()) / "python"
    program = (
        "import hashlib, importlib.resources as resources, json\n"
        "folder = resources.files('delayq') / 'lua'\n"
        "lua = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob('*.lua')}\n"
        "print(json.dumps({name: hashlib.sha256(text).hexdigest() for name, text in lua.items()}))"
    )
    files = SCRIPTS.rglob("*.lua")
    here = {path.relative_to(SCRIPTS).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert json.loads(run(python, "-c", program, cwd=Path("/"))) == here
    where = Path(run(python.with_name("delayq"), "scripts", "path", cwd=Path("/")).strip())
    assert (where / "ack.lua").read_bytes() == (SCRIPTS / "ack.lua").read_bytes()
    assert where.is_relative_to(tmp_path)


@needs_cli
def test_jobs_run_from_an_installed_wheel(built: Path, tmp_path: Path) -> None:
    """`delayq demo` loads every script it needs and runs jobs on the embedded server, far from the checkout."""
    programs = install(built, tmp_path / "elsewhere", extras={"demo"})
    (tmp_path / "home").mkdir()
    shown = run(programs / "delayq", "demo", cwd=Path("/"), HOME=str(tmp_path / "home"))
    assert shown.strip()
