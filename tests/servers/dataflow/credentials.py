"""A service account's key file, and a certificate for Google's hosts, both made here."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

ACCOUNT, PROJECT = "tester@test-project.iam.gserviceaccount.com", "test-project"
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Credentials:
    """Files in a folder.

    Attributes:
        key_file: A service account's key, once `write_key_file` has written it.
        certificate: The certificate of `*.googleapis.com`, its own authority.
    """

    key_file: Path
    certificate: Path
    private_key: str

    def write_key_file(self, token_uri: str) -> None:
        key = {
            "type": "service_account",
            "project_id": PROJECT,
            "client_email": ACCOUNT,
            "client_id": "1",
            "private_key_id": "1",
            "private_key": self.private_key,
            "token_uri": token_uri,
        }
        self.key_file.write_text(json.dumps(key))

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        return context


def make_credentials(folder: Path) -> Credentials:
    """Make files in `folder`; one key of 2,048 bits serves the account and the certificate."""
    folder.mkdir(parents=True, exist_ok=True)
    key = rsa.generate_private_key(65537, 2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a fake of Google")])
    hosts = x509.SubjectAlternativeName([x509.DNSName("*.googleapis.com")])
    now, number = datetime.now(UTC), x509.random_serial_number()
    valid = (now - _DAY, now + _DAY)
    builder = x509.CertificateBuilder(name, name, key.public_key(), number, *valid)
    builder = builder.add_extension(hosts, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
    signed = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
    certificate = folder / "google.pem"
    certificate.write_text(private + signed)
    return Credentials(folder / "account.json", certificate, private)
