"""Deployment files: they say what pyproject.toml, the tests' versions and the parser say."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.dataflow import make_template as template
from shardwright.errors import UsageError
from shardwright.pipelines.options.build import parse_options
from shardwright.transforms.reject_limits import RejectLimits
from tests import ROOT

DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PLACES = ["--input=gs://raw/photos", "--output=gs://training/photos"]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def pins(path: Path) -> dict[str, str]:
    """{canonical name: version} of a file in which every requirement is pinned."""
    lines = [line for line in path.read_text().splitlines() if line and line.strip()[0] != "#"]
    found = [line.partition(";")[0].split("==") for line in lines]
    return {canonicalize_name(name): version for name, version in found}


LOCKED = {path.stem: pins(path) for path in sorted((ROOT / "constraints").iterdir())}
TESTED = LOCKED["python3.11"]
OF_WORKERS = pins(DEPLOY / "worker-requirements.txt")


def needed(requirements: list[str], *, without: frozenset[str] = frozenset()) -> set[str]:
    """Canonical names of installed packages that these require, directly or not.

    Args:
        without: Packages whose own requirements are not followed.
    """
    todo = [Requirement(text) for text in requirements]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while todo:
        requirement = todo.pop()
        key = (canonicalize_name(requirement.name), tuple(sorted(requirement.extras)))
        if key in seen:
            continue
        seen.add(key)
        below = [] if key[0] in without else metadata.requires(requirement.name) or []
        environments = [{"extra": extra} for extra in requirement.extras or {""}]
        todo += [
            each
            for each in map(Requirement, below)
            if each.marker is None or any(map(each.marker.evaluate, environments))
        ]
    return {name for name, _ in seen}


def test_worker_requirements_are_what_build_needs_beside_beam_as_tested() -> None:
    """Of tfx-bsl one extension module is imported, which needs tensorflow-metadata and pyarrow."""
    build = PROJECT["optional-dependencies"]["build"]
    of_build = [text for text in build if Requirement(text).name != "apache-beam"]
    requirements = [*PROJECT["dependencies"], *of_build]
    direct = {canonicalize_name(Requirement(text).name) for text in requirements}
    below = needed(requirements, without=frozenset({"tfx-bsl"}))
    assert OF_WORKERS.keys() == direct | (below - needed(["apache-beam[gcp]"]))
    assert all(OF_WORKERS.items() <= tested.items() for tested in LOCKED.values())
    assert not {"tensorflow", "torch", "jax", "apache-beam"} & OF_WORKERS.keys()


def test_the_image_has_the_tested_beam_and_each_locked_python() -> None:
    """Workers refuse pipelines of another version."""
    versions = re.findall(r"^ARG BEAM_VERSION=(.+)$", DOCKERFILE, re.MULTILINE)
    assert versions == list({tested["apache-beam"] for tested in LOCKED.values()})
    launchers = re.findall(
        r"^FROM \S+/python(\d)(\d+)-template\S+ AS (\S+)$", DOCKERFILE, re.MULTILINE
    )
    assert [f"python{major}.{minor}" for major, minor, _ in launchers] == [*LOCKED]
    assert [f"launcher{major}.{minor}" for major, minor, _ in launchers] == [
        name for *_, name in launchers
    ]


def linked_folders() -> list[Path]:
    """Return the links in shardwright/ that lead to the application's folders."""
    return [path for path in (ROOT / "shardwright").iterdir() if path.is_symlink()]


def test_the_build_context_has_what_the_package_is_made_from() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    packages = {"shardwright", *(os.readlink(link)[3:] for link in linked_folders())}
    copied = re.findall(r"^COPY (deploy/\S+)", DOCKERFILE, re.MULTILINE)
    mounted = re.findall(r"source=(\S+?),", DOCKERFILE)
    project = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
    assert let_in == {*packages, *copied, *mounted, *project}
    assert all((ROOT / name).exists() for name in let_in)


def test_the_committed_template_is_the_parsers() -> None:
    assert json.loads(template.METADATA.read_text()) == template.template_metadata()


def test_check_finds_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["make_template.py", "--check"])
    assert template.main() == 0
    stale = tmp_path / "metadata.json"
    stale.write_text("{}\n")
    monkeypatch.setattr(template, "METADATA", stale)
    assert template.main() == 1
    assert f"{stale} is out of date" in capsys.readouterr().err


def test_the_template_has_the_form_that_google_documents() -> None:
    """The client library's own messages, which take no field that they do not know."""
    from google.cloud.dataflow_v1beta3.types import ContainerSpec, ParameterType, TemplateMetadata

    def parsed(message: Any, content: dict[str, Any]) -> Any:
        return message.from_json(json.dumps(content), ignore_unknown_fields=False)

    told = parsed(TemplateMetadata, template.template_metadata())
    spec = parsed(ContainerSpec, template.container_spec("r/p/i:1"))
    assert spec.image == spec.default_environment.sdk_container_image == "r/p/i:1"
    assert spec.metadata == told
    required = [parameter.name for parameter in told.parameters if not parameter.is_optional]
    assert required == ["input", "output"]
    for parameter in told.parameters:
        assert parameter.label
        assert parameter.help_text
        assert bool(parameter.enum_options) == (parameter.param_type == ParameterType.ENUM)
        if parameter.default_value and parameter.regexes:
            assert re.fullmatch(parameter.regexes[0], parameter.default_value)
    assert len({parameter.name for parameter in told.parameters}) == len(told.parameters) > 40


def test_defaults_of_the_template_are_those_of_the_command() -> None:
    """All of them given, as the console's form does, is the same build as none given."""
    parameters = template.template_metadata()["parameters"]
    defaults = [f"--{p['name']}={p['defaultValue']}" for p in parameters if "defaultValue" in p]
    assert len(defaults) > 10
    assert parse_options([*PLACES, *defaults]) == parse_options(PLACES)


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ("--stratify=true --split=train=0.8,test=0.2", "stratify", True),
        ("--stratify=false", "stratify", False),
        ("--stratify --split=train=0.8,test=0.2", "stratify", True),
        ("--labels=gs://raw/labels.csv --labels_key=stem", "labels_key", "stem"),
        ("--labels=gs://raw/labels.csv --labels_key stem", "labels_key", "stem"),
        ("--max_reject_fraction=0.5", "limits", RejectLimits(max_reject_fraction=0.5)),
        ("--if_exists=overwrite", "if_exists", "overwrite"),
        ("--name=true", "name", "true"),
        ("--job_name=x --no_use_public_ips", "beam_args", ("--job_name=x", "--no_use_public_ips")),
    ],
)
def test_options_as_templates_give_them(given: str, name: str, value: Any) -> None:
    assert getattr(parse_options([*PLACES, *given.split()]), name) == value


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match="argument --stratify: ignored explicit argument 'yes'"):
        parse_options([*PLACES, "--stratify=yes"])
    message = "'--recordsper_shard=3' is not an option of shardwright or Beam; did you mean"
    with pytest.raises(UsageError, match=f"{message} --records-per-shard"):
        parse_options([*PLACES, "--recordsper_shard=3"])


def manifest(*kinds: str) -> list[dict[str, Any]]:
    """Return the objects of these kinds in the Kubernetes manifest."""
    objects = yaml.safe_load_all((DEPLOY / "kubernetes" / "flink.yaml").read_text())
    return [each for each in objects if each["kind"] in kinds]


def pods() -> list[dict[str, Any]]:
    return [each["spec"]["template"]["spec"] for each in manifest("Deployment", "Job")]


def test_the_manifests_build_is_a_command_line() -> None:
    [job] = manifest("Job")
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["shardwright"]
    assert container["args"][0] == "build"
    beam_args = parse_options(container["args"][1:]).beam_args
    assert "--environment_config=localhost:50000" in beam_args
    deployments = {each["metadata"]["name"]: each["spec"] for each in manifest("Deployment")}
    settings = yaml.safe_load(manifest("ConfigMap")[0]["data"]["config.yaml"])
    replicas = deployments["flink-taskmanager"]["replicas"]
    slots = replicas * settings["taskmanager.numberOfTaskSlots"]
    assert f"--parallelism={slots}" in beam_args


def test_the_manifest_has_the_tested_beam_and_flink() -> None:
    pom = (DEPLOY / "flink" / "pom.xml").read_text()
    [flink] = set(re.findall(r"beam-runners-flink-([0-9.]+)<", pom))
    images = {container["image"] for pod in pods() for container in pod["containers"]}
    assert images == {
        "REGISTRY/shardwright:TAG",
        f"flink:{flink}-java17",
        f"apache/beam_flink{flink}_job_server:{TESTED['apache-beam']}",
    }


def test_nothing_in_the_manifest_is_root() -> None:
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            security = container["securityContext"]
            assert pod["securityContext"].get("runAsUser") or security.get("runAsUser")
            assert security["allowPrivilegeEscalation"] is False
            resources = container["resources"]
            assert resources["requests"]["memory"] == resources["limits"]["memory"]


def test_the_workflow_runs_what_ci_runs() -> None:
    """Every target of .ci/run is in the public workflow, whose targets are the Makefile's."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    commands = [step.partition("#")[0].split() for step in steps if step.startswith("make ")]
    targets = {word.strip('"') for command in commands for word in command[1:]} - {"test-$ENGINE"}
    targets |= {f"test-{engine}" for engine in jobs["engine"]["strategy"]["matrix"]["engine"]}
    lines = [line.split() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    words = [word for line in lines if line[:1] in (["run"], ["run_if_time"]) for word in line[1:]]
    run = {word for word in words if not word.startswith("-") and "=" not in word} - {"2"}
    assert {"demo", "test", "test-all", "test-flink"} <= run <= targets
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets <= set(known)
