"""What workers are given: the requirements file, the image and the Flex Template say what pyproject.toml and the parser say."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipelines.options import parse_options
from shardwright.errors import UsageError

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLACES = ["--input=gs://raw/photos", "--output=gs://training/photos"]


def pins(path: Path) -> dict[str, str]:
    """{canonical name: version} of a file in which every requirement is pinned."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    found = dict(line.split("==") for line in lines)
    return {canonicalize_name(name): version for name, version in found.items()}


def needed(requirements: list[str], *, without: frozenset[str] = frozenset()) -> set[str]:
    """Canonical names of installed packages that these require, directly or not; what `without` require is not followed."""
    todo = [Requirement(text) for text in requirements]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while todo:
        requirement = todo.pop()
        key = (canonicalize_name(requirement.name), tuple(sorted(requirement.extras)))
        if key in seen:
            continue
        seen.add(key)
        below = (
            [] if key[0] in without else map(Requirement, metadata.requires(requirement.name) or [])
        )
        environments = [{"extra": extra} for extra in requirement.extras or {""}]
        todo += [
            each
            for each in below
            if each.marker is None or any(map(each.marker.evaluate, environments))
        ]
    return {name for name, _ in seen}


def direct_requirements() -> list[str]:
    """Of the base install and of [build], Beam left out, which a worker's image has."""
    return [
        *PROJECT["dependencies"],
        *(
            text
            for text in PROJECT["optional-dependencies"]["build"]
            if Requirement(text).name != "apache-beam"
        ),
    ]


def test_worker_requirements_are_what_build_needs_beside_beam() -> None:
    """Of tfx-bsl one extension module is imported, which needs none of its requirements but tensorflow-metadata and pyarrow."""
    direct = {canonicalize_name(Requirement(text).name) for text in direct_requirements()}
    beside_beam = needed(direct_requirements(), without=frozenset({"tfx-bsl"})) - needed(
        ["apache-beam[gcp]"]
    )

    assert set(pins(DEPLOY / "worker-requirements.txt")) == direct | beside_beam


def test_worker_requirements_are_the_versions_the_tests_ran_with() -> None:
    tested = pins(ROOT / "constraints.txt")

    assert pins(DEPLOY / "worker-requirements.txt").items() <= tested.items()


def test_worker_requirements_bring_no_framework() -> None:
    assert not {"tensorflow", "torch", "jax", "apache-beam"} & set(
        pins(DEPLOY / "worker-requirements.txt")
    )


def test_the_image_has_the_tested_beam() -> None:
    """Workers refuse pipelines of another version."""
    [version] = re.findall(
        r"^ARG BEAM_VERSION=(.+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE
    )

    assert version == pins(ROOT / "constraints.txt")["apache-beam"]


def test_the_build_context_has_what_the_package_is_made_from() -> None:
    let_in = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    packages = set(re.findall(r'^        "(\w+)', (ROOT / "setup.py").read_text(), re.MULTILINE))

    assert let_in == packages | {
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        *copied_by_the_image(),
    }
    assert all((ROOT / name).exists() for name in let_in)


def copied_by_the_image() -> set[str]:
    text = (DEPLOY / "Dockerfile").read_text()
    return set(re.findall(r"^COPY (deploy/\S+)", text, re.MULTILINE)) | set(
        re.findall(r"source=(\S+?),", text)
    )


@pytest.fixture(scope="module")
def template() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_template", DEPLOY / "dataflow" / "make_template.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_template_is_the_parsers(template: ModuleType) -> None:
    assert json.loads(template.METADATA.read_text()) == template.template_metadata()


def test_check_finds_another_file(tmp_path: Path) -> None:
    script = tmp_path / "make_template.py"
    script.write_text((DEPLOY / "dataflow" / "make_template.py").read_text())
    (tmp_path / "metadata.json").write_text("{}\n")
    command = [sys.executable, str(script), "--check"]

    stale = subprocess.run(
        command,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert stale.returncode == 1
    assert f"{tmp_path / 'metadata.json'} is not what the parser makes" in stale.stderr


def test_the_template_has_the_form_that_google_documents(template: ModuleType) -> None:
    """The client library's own messages, which take no field that they do not know."""
    from google.cloud.dataflow_v1beta3.types import ContainerSpec, ParameterType, TemplateMetadata

    told = TemplateMetadata.from_json(
        json.dumps(template.template_metadata()), ignore_unknown_fields=False
    )
    spec = ContainerSpec.from_json(
        json.dumps(template.container_spec("r/p/i:1")), ignore_unknown_fields=False
    )

    assert spec.image == spec.default_environment.sdk_container_image == "r/p/i:1"
    assert spec.metadata == told
    assert [parameter.name for parameter in told.parameters if not parameter.is_optional] == [
        "input",
        "output",
    ]
    for parameter in told.parameters:
        assert parameter.label
        assert parameter.help_text
        assert bool(parameter.enum_options) == (parameter.param_type == ParameterType.ENUM)
        if parameter.default_value and parameter.regexes:
            assert re.fullmatch(parameter.regexes[0], parameter.default_value)
    assert len({parameter.name for parameter in told.parameters}) == len(told.parameters) > 40


def as_launched(parameters: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in parameters.items()]


def test_defaults_of_the_template_are_those_of_the_command(template: ModuleType) -> None:
    """All of them given, as the console's form does, is the same build as none given."""
    defaults = {
        p["name"]: p["defaultValue"]
        for p in template.template_metadata()["parameters"]
        if "defaultValue" in p
    }

    assert len(defaults) > 10
    assert parse_options([*PLACES, *as_launched(defaults)]) == parse_options(PLACES)


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        (["--stratify=true", "--split=train=0.8,test=0.2"], "stratify", True),
        (["--stratify=false"], "stratify", False),
        (["--stratify", "--split=train=0.8,test=0.2"], "stratify", True),
        (["--labels=gs://raw/labels.csv", "--labels_key=stem"], "labels_key", "stem"),
        (["--labels=gs://raw/labels.csv", "--labels_key", "stem"], "labels_key", "stem"),
        (["--max_reject_fraction=0.5"], "max_reject_fraction", 0.5),
        (["--if_exists=overwrite"], "if_exists", "overwrite"),
        (["--name=true"], "name", "true"),
    ],
)
def test_options_as_templates_give_them(given: list[str], name: str, value: Any) -> None:
    assert getattr(parse_options([*PLACES, *given]), name) == value


def test_a_flag_takes_no_other_value(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse_options([*PLACES, "--stratify=yes"])
    assert "argument --stratify: ignored explicit argument 'yes'" in capsys.readouterr().err


def test_beams_own_options_pass_through() -> None:
    assert parse_options([*PLACES, "--job_name=x", "--no_use_public_ips"]).beam_args == (
        "--job_name=x",
        "--no_use_public_ips",
    )


def test_what_is_no_option_is_still_told() -> None:
    with pytest.raises(
        UsageError,
        match="'--recordsper_shard=3' is no option of shardwright or of Beam; did you mean --records-per-shard",
    ):
        parse_options([*PLACES, "--recordsper_shard=3"])


def test_the_documented_costs_are_the_scripts() -> None:
    table = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "cost.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert table.count("\n") == 6
    assert table in (ROOT / "docs" / "runners.md").read_text()


def manifest(kind: str) -> list[dict[str, Any]]:
    """The objects of a kind in the Kubernetes manifest."""
    objects = yaml.safe_load_all((DEPLOY / "kubernetes" / "flink.yaml").read_text())
    return [each for each in objects if each["kind"] == kind]


def containers() -> list[dict[str, Any]]:
    pods = [
        each["spec"]["template"]["spec"]
        for kind in ("Deployment", "Job")
        for each in manifest(kind)
    ]
    return [container for pod in pods for container in pod["containers"]]


def test_the_manifests_build_is_a_command_line() -> None:
    [job] = manifest("Job")
    [container] = job["spec"]["template"]["spec"]["containers"]
    options = parse_options(container["args"][1:])

    assert container["command"] == ["shardwright"]
    assert container["args"][0] == "build"
    assert "--environment_config=localhost:50000" in options.beam_args
    [workers] = [
        each for each in manifest("Deployment") if each["metadata"]["name"] == "flink-taskmanager"
    ]
    settings = yaml.safe_load(manifest("ConfigMap")[0]["data"]["config.yaml"])
    slots = workers["spec"]["replicas"] * settings["taskmanager.numberOfTaskSlots"]
    assert f"--parallelism={slots}" in options.beam_args


def test_the_manifest_has_the_tested_beam_and_flink() -> None:
    [flink] = set(
        re.findall(r"beam-runners-flink-([0-9.]+)<", (DEPLOY / "flink" / "pom.xml").read_text())
    )
    others = {each["image"] for each in containers()} - {"REGISTRY/shardwright:TAG"}

    assert others == {
        f"flink:{flink}-java17",
        f"apache/beam_flink{flink}_job_server:{pins(ROOT / 'constraints.txt')['apache-beam']}",
    }


def test_nothing_in_the_manifest_is_root() -> None:
    for kind in ("Deployment", "Job"):
        for each in manifest(kind):
            pod = each["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            for container in pod["containers"]:
                users = [
                    context.get("runAsUser")
                    for context in (pod["securityContext"], container["securityContext"])
                ]
                assert any(users)
                assert container["securityContext"]["allowPrivilegeEscalation"] is False
                assert (
                    container["resources"]["requests"]["memory"]
                    == container["resources"]["limits"]["memory"]
                )


def test_the_workflow_runs_what_ci_runs() -> None:
    """Every target of .ci/run is in a job of the public workflow, whose targets are the Makefile's."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    commands = [
        step["run"].partition("#")[0]
        for job in jobs.values()
        for step in job["steps"]
        if "run" in step
    ]
    engines = jobs["engine"]["strategy"]["matrix"]["engine"]
    targets = {target.strip('"') for command in commands for target in command.split()[1:]} - {
        "test-$ENGINE"
    }

    targets |= {f"test-{engine}" for engine in engines}

    assert targets >= targets_of(ROOT / ".ci" / "run")
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def targets_of(script: Path) -> set[str]:
    lines = [line.split() for line in script.read_text().splitlines() if line.startswith("make ")]
    return {target for line in lines for target in line[1:]}
