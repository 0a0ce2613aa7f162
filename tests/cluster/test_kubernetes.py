# SPDX-License-Identifier: Apache-2.0
"""docs/cluster/kubernetes.yaml: its schema, and JAX's own detection in processes that act as its pods."""

import copy
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.cluster import packages, pods
from tests.cluster.commands import ROOT, run

LIMIT = 120.0
FILE = ROOT / "docs" / "cluster" / "kubernetes.yaml"


@pytest.fixture
def documents():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install -e '.[test]'")
    return list(yaml.safe_load_all(FILE.read_text()))


@pytest.fixture
def manifest(documents):
    if find_spec("kubernetes") is None:
        pytest.skip("JAX's detection needs the package kubernetes: pip install 'jax[k8s]'")
    if reason := packages.reason():
        pytest.skip(reason)
    for program in ("unshare", "openssl"):
        if not shutil.which(program):
            pytest.skip(f"no {program}")
    if subprocess.run(
        ["unshare", "--mount", "--uts", "mount", "--make-rprivate", "/"], capture_output=True
    ).returncode:
        pytest.skip("no mount namespace can be made here")
    return pods.Manifest({document["kind"]: copy.deepcopy(document) for document in documents})


def hello(manifest, environment, directory):
    """tests.cluster.hello in each pod at once, and how that ended."""
    command = [sys.executable, "-m", "tests.cluster.hello", "2"]
    with pods.server(manifest, directory) as service:
        common = {"JAX_PLATFORMS": "cpu"} | service
        both = [
            (pods.pod(manifest, directory, command), pods.environment(manifest, index) | common)
            for index in range(manifest.job["spec"]["completions"])
        ]
        return run(pods.together(both), environment, LIMIT)


@pytest.mark.files_alone
def test_the_objects_fit_together(documents):
    by_kind = {document["kind"]: document for document in documents}
    assert (
        list(by_kind) == ["ServiceAccount", "Role", "RoleBinding", "Service", "Job"] and len(documents) == 5
    )
    job, service = by_kind["Job"], by_kind["Service"]
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"] > 1
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"] and pod["restartPolicy"] == "Never"
    script = pod["containers"][0]["args"][0]
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    named = {item["name"] for item in pod["containers"][0]["env"]} | {"JOB_COMPLETION_INDEX"}
    assert set(re.findall(r"\$([A-Z_]+)", script)) <= named


def test_the_manifest_validates_against_the_published_schema(documents):
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: pip install kubernetes-validate"
    )
    for document in documents:
        validate.validate(document, validate.latest_version(), strict=True)
    slip = copy.deepcopy(documents[-1])
    slip["spec"]["completionmode"] = slip["spec"].pop("completionMode")
    with pytest.raises(validate.ValidationError, match="completionmode"):
        validate.validate(slip, validate.latest_version(), strict=True)


def test_jax_detects_the_pods(manifest, bare, tmp_path):
    done = hello(manifest, bare, tmp_path)
    said = sorted(re.findall(r"rank \d+ of \d+: \d+ of \d+ devices, psum \w+", done.text))
    assert said == [f"rank {rank} of 2: 4 of 8 devices, psum right" for rank in (0, 1)], done.text
    assert (done.code, done.left) == (0, [])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda m: m.objects["Role"]["rules"].pop(1), "does not have the permission for pod introspection"),
        (
            lambda m: m.job["spec"]["template"]["spec"].pop("subdomain"),
            "it is not specified as the job subdomain",
        ),
        (
            lambda m: m.job["spec"].pop("completionMode"),
            'jobs must be indexed by setting `completionMode: "Indexed"`',
        ),
    ],
    ids=["rights", "subdomain", "index"],
)
def test_each_part_of_the_manifest_is_needed(manifest, bare, tmp_path, spoil, message):
    spoil(manifest)
    done = hello(manifest, bare, tmp_path)
    assert done.code not in (0, None) and message in " ".join(done.text.split()), done.text
