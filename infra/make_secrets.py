"""Makes the files docker-compose.yml reads its secrets from. What exists is kept: a second run changes nothing.

python infra/make_secrets.py [FOLDER]     # default: infra/secrets; RETOLD_SECRETS names another to Compose
"""

from __future__ import annotations

import base64
import json
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path

FOLDER = Path(__file__).parent / "secrets"
PASSWORDS = (
    "postgres_password",
    "temporal_db_password",
    "retold_store_password",
    "retold_qdrant_api_key",
    "grafana_admin_password",
)


def codec_keys() -> str:
    """One AES-256 key under an id that says when it was made. The first one listed encrypts, all of them decrypt."""
    key_id = f"k{datetime.now(UTC):%Y%m%d%H%M%S}"
    return json.dumps([{"id": key_id, "key": base64.b64encode(secrets.token_bytes(32)).decode()}])


def make_secrets(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = {name: secrets.token_urlsafe(32) for name in PASSWORDS} | {"retold_codec_keys": codec_keys()}
    for name, value in wanted.items():
        path = folder / name
        if path.exists():
            print(f"kept   {path}")
            continue
        # 0644 in a 0700 folder: containers read it as users of their own, other people of this machine do not.
        path.touch(mode=0o644)
        path.write_text(value)
        print(f"made   {path}")


if __name__ == "__main__":
    make_secrets(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
