# SPDX-License-Identifier: Apache-2.0
"""Processes that act as the pods of docs/cluster/kubernetes.yaml, and a stand-in for the API server.

Each "pod" is a process with a host name and a mount namespace of its own: /run holds a service account's files, and
/etc/hosts holds the names that the headless Service would give. The stand-in answers from the manifest's objects, and
grants what its Role grants. This does not test that a real API server accepts the manifest, nor the images, the name
service and the network of a cluster.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

NAMESPACE = "somewhere"
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"  # /var/run is /run

# The paths that JAX's client asks: group, resource, name.
PATHS = re.compile(
    rf"/(?:api/v1|apis/(?P<group>[a-z.]+)/v1)/namespaces/{NAMESPACE}/(?P<kind>[a-z]+)(?:/(?P<name>.+))?"
)


@dataclass
class Manifest:
    """The objects of the manifest, by kind."""

    objects: dict[str, dict]

    @property
    def job(self) -> dict:
        return self.objects["Job"]

    def address(self, index: int) -> str:
        return f"127.0.0.{index + 1}"

    def hostname(self, index: int) -> str:
        """As the Job controller names the pods of an Indexed Job."""
        return f"{self.job['metadata']['name']}-{index}"

    def pods(self) -> list[dict]:
        """What the Job controller makes of the template."""
        job, template = self.job, self.job["spec"]["template"]
        name = job["metadata"]["name"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "1", "controller": True}
        return [
            {
                "metadata": {
                    "name": f"{self.hostname(index)}-abcde",
                    "labels": {**template.get("metadata", {}).get("labels", {}), "job-name": name},
                    "ownerReferences": [owner],
                },
                "spec": {**template["spec"], "hostname": self.hostname(index)},
                "status": {"podIP": self.address(index)},
            }
            for index in range(job["spec"]["completions"])
        ]

    def granted(self, group: str, resource: str, verb: str) -> bool:
        """Whether the pods' account may do so."""
        account = self.job["spec"]["template"]["spec"].get("serviceAccountName", "default")
        binding = self.objects["RoleBinding"]
        return (
            any(subject["name"] == account for subject in binding["subjects"])
            and account == self.objects["ServiceAccount"]["metadata"]["name"]
            and binding["roleRef"]["name"] == self.objects["Role"]["metadata"]["name"]
            and any(
                group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
                for rule in self.objects["Role"]["rules"]
            )
        )

    def answer(self, path: str) -> tuple[int, dict]:
        """Status and body of GET `path`."""
        parts = urlsplit(path)
        asked = PATHS.fullmatch(parts.path)
        if not asked:
            return 404, {"reason": f"no {path} in this stand-in"}
        group, resource, name = asked["group"] or "", asked["kind"], asked["name"]
        if not self.granted(group, resource, "get" if name else "list"):
            return 403, {"reason": "Forbidden"}
        if resource == "pods":
            found = self.pods()
            if selector := parse_qs(parts.query).get("fieldSelector"):
                found = [pod for pod in found if f"status.podIP={pod['status']['podIP']}" == selector[0]]
            return 200, {"kind": "PodList", "apiVersion": "v1", "items": found}
        if resource == "services":
            return 200, {"kind": "ServiceList", "apiVersion": "v1", "items": [self.objects["Service"]]}
        if resource == "jobs" and name == self.job["metadata"]["name"]:
            return 200, self.job
        return 404, {"reason": "NotFound"}


@contextmanager
def server(manifest: Manifest, directory: Path) -> Iterator[dict[str, str]]:
    """The stand-in, with TLS, while the block runs: the variables by which a pod finds it."""
    certificate, key = directory / "ca.crt", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=kubernetes",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            right = self.headers.get("Authorization", "").lower() == "bearer secret"
            status, body = manifest.answer(self.path) if right else (401, {"reason": "Unauthorized"})
            data = json.dumps(body).encode()
            self.send_response(status, body.get("reason"))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    served.socket = context.wrap_socket(served.socket, server_side=True)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    try:
        yield {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(served.server_port)}
    finally:
        served.shutdown()
        served.server_close()
        thread.join()


def environment(manifest: Manifest, index: int) -> dict[str, str]:
    """What the Job controller and the container's runtime put into a pod's environment."""
    container = manifest.job["spec"]["template"]["spec"]["containers"][0]
    own = {item["name"]: item["value"] for item in container.get("env", [])}
    own |= {"HOSTNAME": manifest.hostname(index), "no_proxy": "*"}
    if manifest.job["spec"].get("completionMode") == "Indexed":
        own["JOB_COMPLETION_INDEX"] = str(index)
    return own


def pod(manifest: Manifest, directory: Path, command: Sequence[str]) -> list[str]:
    """The command in a mount namespace with a pod's files; needs root."""
    subdomain = manifest.job["spec"]["template"]["spec"].get("subdomain")
    lines = ["127.0.0.1 localhost"]
    for index in range(manifest.job["spec"]["completions"]):
        host = manifest.hostname(index)
        resolved = (
            [host, f"{host}.{subdomain}"]
            if subdomain == manifest.objects["Service"]["metadata"]["name"]
            else [host]
        )
        lines.append(" ".join([manifest.address(index), *resolved]))
    (directory / "hosts").write_text("\n".join(lines) + "\n")
    (directory / "token").write_text("secret")
    (directory / "namespace").write_text(NAMESPACE)
    script = (
        "set -e; mount --make-rprivate /; mount -t tmpfs tmpfs /run; "
        f'mkdir -p {ACCOUNT}; cp "$0"/ca.crt "$0"/token "$0"/namespace {ACCOUNT}; '
        'mount --bind "$0"/hosts /etc/hosts; hostname "$HOSTNAME"; exec "$@"'
    )
    # A host name of its own too: gloo listens on the address that it has.
    return ["unshare", "--mount", "--uts", "bash", "-c", script, str(directory), *command]


def together(commands: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> list[str]:
    """One shell command line that runs all at once and ends with the last code that is not 0."""
    import shlex

    lines = []
    for command, variables in commands:
        assignments = [f"{name}={value}" for name, value in variables.items()]
        lines.append(shlex.join(["env", *assignments, *command]) + " & ids+=($!)")
    return [
        "bash",
        "-c",
        "\n".join(
            ["ids=()", *lines, 'code=0; for i in "${ids[@]}"; do wait "$i" || code=$?; done; exit $code']
        ),
    ]
