"""Keys that a reader trusts, obtained from a source other than the documents (spec/log.md, 18)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .crypto import is_usable_key, thumbprint
from .encoding import read_base64url
from .entries import leaf_hash
from .errors import InvalidError, raising, require
from .forms import is_index, is_text
from .merkle import inclusion_root
from .notes import Checkpoint, Quorum, TlogProof, Vkey, open_note, parse_checkpoint, parse_vkey, read_policy


class AepKey(NamedTuple):
    """Signatures count at `after` < leaf index < `before`; None means unbounded.

    From `compromised` on, signatures of keys that this key, as a root, has delegated do not count either.
    """

    key_id: str
    public: bytes
    after: int | None
    before: int | None
    compromised: int | None


class PinnedLog:
    """The vkeys of a log, each with the size up to which its checkpoints count, and a quorum of witnesses."""

    def __init__(self, vkeys: object, origin: object, policy: object = None) -> None:
        given = [vkeys] if isinstance(vkeys, str) else vkeys
        require(isinstance(given, Sequence) and given, "malformed_vkey")
        assert isinstance(given, Sequence)  # noqa: S101
        self.sizes: dict[Vkey, int | None] = {}
        for one in given:
            pin: Any = {"vkey": one} if isinstance(one, str) else one
            require(isinstance(pin, Mapping) and is_text(pin.get("vkey")), "malformed_vkey")
            size = pin.get("from_size")
            require(size is None or is_index(size), "malformed_vkey")
            self.sizes[parse_vkey(pin["vkey"])] = size
        # A signature states only the name and the id of its key.
        ids, names = {key.key_hash for key in self.sizes}, {key.name for key in self.sizes}
        require(len(ids) == len(given) and len(names) == 1, "malformed_vkey")
        require(all(is_usable_key(key.public) for key in self.sizes), "unusable_key")
        require(isinstance(origin, str) and re.fullmatch("[^\0-\x1f]+", origin), "malformed_origin")
        require(policy is None or isinstance(policy, str), "malformed_policy")
        self.origin = str(origin)
        self.quorum: Quorum | None = None if policy is None else read_policy(str(policy))

    def open(self, note: str, *, needs_quorum: bool = True) -> Checkpoint:
        """The checkpoint in a note, if it counts under these pins (step 8)."""
        text, signers = open_note(note, list(self.sizes))
        checkpoint = parse_checkpoint(text, self.origin)
        limits = [self.sizes[key] for key in signers]
        # Rejects larger trees: the holder of a stolen key can still sign them after the key is retired.
        require(any(limit is None or checkpoint.size <= limit for limit in limits), "unknown_signer")
        require(not needs_quorum or self.quorum is None or self.quorum(note), "quorum_not_met")
        return checkpoint

    def check_inclusion(
        self, entry: Any, proof: TlogProof, *, tree_size: int | None = None, needs_quorum: bool = True
    ) -> Checkpoint:
        """The checkpoint in whose tree the entry is (steps 8 to 10)."""
        try:
            checkpoint = self.open(proof.note, needs_quorum=needs_quorum)
        except InvalidError as fault:
            # A code of its own, because `bad_signature` is also the code of a bad AEP signature.
            is_bad = fault.code == "bad_signature"
            raise InvalidError("bad_checkpoint_signature" if is_bad else fault.code) from fault
        require(tree_size in (None, checkpoint.size), "tree_size_mismatch")
        require_included(entry, proof, checkpoint)
        return checkpoint


def require_included(entry: Any, proof: TlogProof, checkpoint: Checkpoint) -> None:
    root = inclusion_root(proof.index, checkpoint.size, leaf_hash(entry), proof.path)
    require(root == checkpoint.root, "not_in_tree")


class Pins:
    """AEP keys or roots (base64url or JWK), and optionally the log: vkeys, origin and the text of a C2SP tlog-policy.

    A vkey is a text, or `{"vkey", "from_size"}` for a retired one. Raises `SvcError` (`unusable_pin`).
    """

    @raising("unusable_pin", "a pinned key is unusable")
    def __init__(
        self, aep_keys: Sequence[object] = (), log_vkey: object = None, log_origin: object = None, policy: object = None
    ) -> None:
        # Rejects an origin or a policy without a log: it would be ignored, and nothing would be checked for inclusion.
        require(log_vkey is not None or (log_origin is None and policy is None), "malformed_vkey")
        self.aep_keys = [_read_key(pin) for pin in aep_keys]
        self.log = None if log_vkey is None else PinnedLog(log_vkey, log_origin, policy)


def _read_key(pin: object) -> AepKey:
    jwk: Any = {"kty": "OKP", "crv": "Ed25519", "x": pin} if isinstance(pin, str) else pin
    require(isinstance(jwk, Mapping) and "d" not in jwk, "malformed_key")
    kind = [jwk.get("kty"), jwk.get("crv"), jwk.get("use", "sig")]
    public = read_base64url(jwk.get("x"), 32)
    if kind != ["OKP", "Ed25519", "sig"] or jwk.get("alg", "EdDSA") not in ("EdDSA", "Ed25519") or public is None:
        raise InvalidError("malformed_key")
    require(is_usable_key(public), "unusable_key")
    key_id = thumbprint(public)
    require(jwk.get("kid", key_id) == key_id, "key_id_mismatch")
    after, *ends = (jwk.get(bound) for bound in ("activated_at", "retired_at", "compromised_from"))
    require(all(bound is None or is_index(bound) for bound in (after, *ends)), "malformed_key")
    return AepKey(key_id, public, after, min((end for end in ends if end is not None), default=None), ends[1])
