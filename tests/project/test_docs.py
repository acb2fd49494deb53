"""Every command and code block of README.md and docs/ runs, page by page."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.inspect import cli
from shardwright.pipelines.options.build import parse_options
from tests import ROOT
from tests.servers.store_server import StoreServer
from tests.support import docs_inputs
from tests.support.object_stores import delete_object, list_keys, upload_folder

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
MANY_BUILDS = {"inputs", "images", "splits", "schemas", "stores", "builds", "report", "shard-sizes"}
_made: set[str] = set()  # buckets of the session's servers
WITH_OTHER_OPTIONS = {"runners", "dataflow", "flink", "airflow"}  # of Beam, Docker, gcloud
NOT_RUN = re.compile(r"<!-- not run: .+ -->\n$")
ELSEWHERE = re.compile(r"<!-- environment: torch -->\n$")  # tests/torch runs these blocks
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    before: str  # the page up to it

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command after `$ `."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ ")]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(m[2], m[3], text[: m.start()]) for m in FENCE.finditer(text)]


def builds_of(page: Path) -> list[list[str]]:
    """Return the words of each `shardwright build` of a page, without those of an append."""
    text = page.read_text()
    blocks = (block for block in blocks_of(page) if block.language == "console")
    commands = [words for block in blocks for words in block.commands]
    commands += [shlex.split(row) for row in re.findall(r"\| `\$ ([^`]*)` \|$", text, re.MULTILINE)]
    found = [words for words in commands if words[:2] == ["shardwright", "build"]]
    of_appends = re.compile(r" --if-exists append( --fail-on \S+)?")
    return [shlex.split(of_appends.sub("", shlex.join(words))) for words in found]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write what a reader of README.md has, with the dataset of its first command, and copy it.

    The copy has the times of the files, so that the dataset is up to date where it was built.
    """
    here = docs_inputs.write(tmp_path_factory.mktemp("docs") / "here")
    with chdir(here):
        run_command(builds_of(ROOT / "README.md")[0], [])
    return Path(shutil.copytree(here, here.with_name("copy")))


@pytest.fixture
def folder(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the folder back to what a reader of README.md has, and make it the working folder."""
    here = inputs.with_name("here")
    shutil.rmtree(here)
    shutil.copytree(inputs, here)
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(here))
    return here


def run_python(block: Block, names: dict[str, Any], page: Path) -> None:
    if (first := block.text.partition("\n")[0]).endswith(".py"):
        Path(first.removeprefix("# ")).write_text(block.text)
    exec(compile(block.text, str(page), "exec", dont_inherit=True), names)


def run_command(words: list[str], stores: list[str]) -> None:
    if words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(), words
    elif words[:2] == ["pip", "install"]:
        extras = set(re.findall(r"[\w-]+", words[2].partition("[")[2]))
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert extras <= set(project["optional-dependencies"]), words
    else:
        assert words[0] == "shardwright", words
        used = stores if any(word.startswith(("s3://", "gs://")) for word in words) else []
        assert cli.main([*words[1:], *used]) == 0, words


@pytest.fixture
def stores(request: pytest.FixtureRequest, inputs: Path) -> list[str]:
    """Options that lead `s3://raw` and `gs://training` to real servers, and OUTPUT is empty."""
    s3, gcs = (request.getfixturevalue(f"{name}_server") for name in ("s3", "gcs"))
    return [*_bucket(s3, "raw", inputs / "photos"), *_bucket(gcs, "training", None)]


def _bucket(server: StoreServer, name: str, content: Path | None) -> list[str]:
    if name not in _made:
        server.make_bucket(name)
        _made.add(name)
    for key in list_keys(server, f"{server.scheme}://{name}/"):
        delete_object(server, f"{server.scheme}://{name}/{key}")
    if content is not None:
        upload_folder(server, content, f"{server.scheme}://{name}/photos")
    uri = f"{server.scheme}://{name}"
    return [
        word
        for key, value in server.options.items()
        for word in ("--storage-option", f"{uri}:{key}={value}")
    ]


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page.stem in MANY_BUILDS)) for page in PAGES],
    ids=lambda page: page.stem,
)
@pytest.mark.usefixtures("folder")
def test_its_blocks_run(page: Path, request: pytest.FixtureRequest) -> None:
    names: dict[str, Any] = {"__name__": "docs"}
    needs_stores = any(
        word.startswith(("s3://", "gs://"))
        for block in blocks_of(page)
        if block.language == "console"
        for words in block.commands
        for word in words
    )
    stores = request.getfixturevalue("stores") if needs_stores else []
    for block in blocks_of(page):
        if ELSEWHERE.search(block.before) or NOT_RUN.search(block.before):
            continue
        if block.language == "python":
            # A block of README.md is a whole program.
            run_python(block, {"__name__": "docs"} if page.stem == "README" else names, page)
        elif block.language == "console":
            assert block.commands, block.text
            for words in block.commands:
                run_command(words, stores)
        else:
            known = block.language in ("text", "toml")
            assert known, f"a block of {block.language!r} that no test runs: {block.text}"


@pytest.mark.long
@pytest.mark.usefixtures("folder")
def test_the_table_of_tutorials_runs() -> None:
    page = ROOT / "docs" / "tutorials.md"
    (words,) = blocks_of(page)
    run_python(words, {}, page)
    lines = re.findall(r"\| `([^`]*)` \|$", page.read_text(), re.MULTILINE)
    for line in lines:
        if line.startswith("$ "):
            run_command(shlex.split(line[2:]), [])
        else:
            exec(f"import shardwright as sw; {line}", {})
    assert len(lines) == page.read_text().count("\n| ") - 1, "a row without code"


def test_an_output_has_one_command() -> None:
    """A reader who follows page after page meets no dataset of other options."""
    built: dict[str, set[str]] = {}
    for page in PAGES:
        for words in builds_of(page):
            built.setdefault(words[3].rstrip("/"), set()).add(shlex.join(words))
        for block in blocks_of(page):
            for output in re.findall(
                r"^(?:with )?sw\.[wW]rite.*?\"(.+?)/\"", block.text, re.MULTILINE
            ):
                built.setdefault(output, set()).add(f"{page.name}: {block.text}")
    assert {output: found for output, found in built.items() if len(found) > 1} == {}


@pytest.mark.parametrize("where", ["docs/index.md", "README.md", "mkdocs.yml"])
def test_every_page_is_listed(where: str) -> None:
    linked = set(re.findall(r"[\w-]+\.md", (ROOT / where).read_text()))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {Path(where).name}
    assert sorted(pages - linked - {"index.md"}) == []


def test_the_api_page_shows_the_names_that_users_write() -> None:
    page = (ROOT / "docs/python-api.md").read_text()
    assert sorted(re.findall(r"{heading: sw\.(\w+)}", page)) == sorted(sw.__all__)
    shown = re.findall(
        r"^::: shardwright\.(?:.*\.)?(\w+)\n    options: {heading: sw\.(\w+)}", page, re.M
    )
    assert [name for name, heading in shown if name != heading] == []
    assert len(shown) == len(sw.__all__)


def test_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--help-all"])
    known = capsys.readouterr().out
    others = {"--target", "--quick", "--save", "--seconds", "--ids", "--once", "--wait", "--json"}
    others |= {
        "--parallelism",
        "--pictures",
        "--version",
        "--yes",
        "--receipt",
        "--allow-missing",
        "--cache",
        "--verify",
        "--orphans-after",
        "--until",
        "--remove",
        "--newest",
        "--keep-names",
    }
    others |= {"--runner", "--project", "--region"}
    text = "".join(page.read_text() for page in PAGES if page.stem not in WITH_OTHER_OPTIONS)
    found = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+(?![\w_-])", text))
    assert sorted(option for option in found - others if option not in known) == []


@pytest.mark.parametrize(("page", "lines"), [("README.md", 120), ("docs/quickstart.md", 45)])
def test_it_fits_its_screens(page: str, lines: int) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= lines
