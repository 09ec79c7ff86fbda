"""Every path of a node, in one place: everything lives under its data dir."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from glia.local.address import LOCK_NAME, SOCKET_NAME

CONFIG_NAME = "glia.toml"
_CHECKOUT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Paths:
    """Where a node keeps things."""

    data_dir: Path

    @property
    def socket(self) -> Path:
        """The local API, mode 0600 in the data dir (0700)."""
        return self.data_dir / SOCKET_NAME

    @property
    def lock(self) -> Path:
        """Held by the running gliad (flock); carries its pid."""
        return self.data_dir / LOCK_NAME

    @property
    def version(self) -> Path:
        """The data dir's format version."""
        return self.data_dir / "format"

    @property
    def store(self) -> Path:
        """L2."""
        return self.data_dir / "store"

    @property
    def models(self) -> Path:
        """Manifests added by name, the model_id cache, conversions of GGUF files."""
        return self.data_dir / "models"

    @property
    def calibrations(self) -> Path:
        """How far off honest windows of each model are (glia/spec/20-calibration.md)."""
        return self.models / "calibrated"

    @property
    def attachments(self) -> Path:
        """What engines attached with."""
        return self.models / "attached.json"

    @property
    def conversations(self) -> Path:
        """Conversations, a file each."""
        return self.data_dir / "conversations"

    @property
    def http_key(self) -> Path:
        """The key of HTTP requests, mode 0600."""
        return self.data_dir / "http.key"

    @property
    def neuron_key(self) -> Path:
        """The seed that links are signed with, mode 0600."""
        return self.data_dir / "neuron.key"

    @property
    def soul_key(self) -> Path:
        """The Soul's secret, mode 0600."""
        return self.data_dir / "soul.key"

    @property
    def soul_state(self) -> Path:
        """What is known of the Soul's moves."""
        return self.data_dir / "soul.json"

    @property
    def soul_claim(self) -> Path:
        """What this Body claimed last."""
        return self.data_dir / "soul.claim"

    @property
    def restoring(self) -> Path:
        """What is to be restored, whatever happens."""
        return self.data_dir / "restoring"

    @property
    def peer_key(self) -> Path:
        """The seed of the libp2p key, mode 0600."""
        return self.data_dir / "peer.key"

    @property
    def box_key(self) -> Path:
        """The seed of the key that groups' secrets come to, mode 0600."""
        return self.data_dir / "box.key"

    @property
    def published_groups(self) -> Path:
        """What groups are shown, as ciphertexts."""
        return self.data_dir / "published-groups"

    @property
    def own_key(self) -> Path:
        """What is this node's alone is encrypted with it at rest, behind a group's, mode 0600."""
        return self.data_dir / "own.key"

    @property
    def groups(self) -> Path:
        """Groups, a file each, mode 0600: their secrets."""
        return self.data_dir / "groups"

    @property
    def peers(self) -> Path:
        """What is known of peers."""
        return self.data_dir / "peers.json"

    @property
    def neurons(self) -> Path:
        """What is known of neurons."""
        return self.data_dir / "neurons.json"

    @property
    def published(self) -> Path:
        """The index of what peers may see."""
        return self.data_dir / "published"

    @property
    def heard(self) -> Path:
        """Links that others sent."""
        return self.data_dir / "heard"

    @property
    def log(self) -> Path:
        """gliad's log; engines write to it through gliad."""
        return self.data_dir / "gliad.log"

    @property
    def stderr(self) -> Path:
        """What a gliad in the background says before and beside its log."""
        return self.data_dir / "gliad.stderr"


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """GLIA_DATA_DIR, else glia in the user's data directory. Absolute."""
    named = environ.get("GLIA_DATA_DIR")
    return Path(named).expanduser().absolute() if named else _user_data(environ) / "glia"


def default_models_dir(environ: Mapping[str, str]) -> Path:
    """GLIA_MODELS_DIR, else models/ of the checkout gliad runs from, else of the user."""
    named = environ.get("GLIA_MODELS_DIR")
    if named:
        return Path(named).expanduser().absolute()
    if (_CHECKOUT / "pyproject.toml").exists():
        return _CHECKOUT / "models"
    return _user_data(environ) / "glia-models"


def _user_data(environ: Mapping[str, str]) -> Path:
    named = Path(environ.get("XDG_DATA_HOME", ""))
    # The XDG rule: a relative path there is to be ignored.
    return named if named.is_absolute() else Path.home() / ".local" / "share"
