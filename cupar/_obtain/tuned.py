"""Policies that were measured on a kind of card (``cupar tune``), as entries of the cache.

Such an entry is small: a policy, and what it was measured with. Its key holds the kind of card, what the
family says that a policy depends on (`Tunable.scope`), and the kernels' source, for a policy of other kernels
says nothing of these. It lies where builds lie, and travels with them. A build for the device at hand asks
for it before its own key is made, so a policy makes another build and no build is ever stale; builds for a
compute capability alone (``cc=``) have the default policies, because the card is not known.

A lookup costs one access to a missing file, once per process for each kind of problem. A shared store is
queried only if the build is not available locally either.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _cache
from .._base import fork, log
from .._base.bounded import of_builds
from .._base.warnings import warn_once
from .._base.words import OFF
from .._compile import entries
from .._compile.key import build_parts, digest, policy_parts
from .._device import driver
from .._device.card import Card, card_of
from .._ir.specialisation import Specialisation
from .._kernels.tuning import write
from .._store import settings
from .._store.entry import Entry
from .._store.settings import signing_key

_known: dict[Any, str] = of_builds({})  # policies as text by device, name and scope; empty: no policy


def applied(spec: Specialisation, device: driver.Device | None) -> Specialisation:
    """Return the specialisation with the policy that was measured on such a card, if there is one."""
    family = spec.family
    tunable = None if family is None else family.tunable
    if device is None or tunable is None or spec.option("policy") is not None or is_off():
        return spec
    asked = device, tunable.name, *tunable.scope(spec).items()
    found = _known.get(asked)
    if found is None:
        found = _known[asked] = _look(spec, card_of(device))
    return spec.with_policy(found) if found else spec


def is_off() -> bool:
    """Whether the environment says that no measured policy is used: ``CUPAR_TUNED=0``."""
    return os.environ.get("CUPAR_TUNED", "").strip().lower() in OFF


def _look(spec: Specialisation, card: Card) -> str:
    """Return the policy kept for a specialisation on a kind of card; empty if there is no policy."""
    tunable = spec.family.tunable
    if not tunable.space(spec):
        return ""
    parts = policy_parts(spec, card)
    found = entries.find(parts, remote=False)
    if (
        found is None
        and _cache.shared() is not None
        and entries.find(build_parts(spec), remote=False) is None
    ):
        found = entries.find(parts)
    if found is None:
        return ""
    import json

    try:
        policy = tunable.made(**json.loads(found.entry.payload)["policy"])
        if not all(type(each) is int for each in policy) or not tunable.may_be(spec, policy):
            raise ValueError(f"{policy} is no policy of {tunable.name}")
    except Exception as error:  # any content: nesting too deep for a parser, numbers too long
        why = str(error) if len(str(error)) < 200 else type(error).__name__
        key = found.key
        warn_once(("policy", key), f"cupar does not use the tuned policy {key} of {found.source}: {why}")
        return ""
    log.info("%s has a tuned policy for %s: %s", spec.algorithm, card, write(policy))
    return write(policy)


def entry(
    spec: Specialisation, card: Card, policy: tuple[Any, ...], measured: Sequence[Mapping[str, Any]]
) -> tuple[str, Entry]:
    """Return a policy as an entry, with its key.

    Parameters
    ----------
    spec : Specialisation
    card : Card
    policy : named tuple
    measured : sequence of mapping
        For each problem its description, and the seconds with the default policy and with this one.
    """
    import json

    parts = policy_parts(spec, card)
    content = {"policy": policy._asdict(), "measured": [*measured]}  # type: ignore[attr-defined]
    meta = {
        "algorithm": spec.algorithm,
        "cc": card.cc,
        "entry": parts["entry"],
        "card": str(card),
        "policy": write(policy),
        "measured": [*measured],
        "parts": parts,
    }
    return digest(parts), Entry(meta, json.dumps(content, sort_keys=True).encode())


def keep(key: str, entry: Entry) -> bool:
    """Keep an entry in the user's directory and the shared store, in place of those there.

    Return whether the directory has it now.
    """
    forget()
    own, store = _cache.disk(), _cache.shared()
    if own is not None:
        own.store(key, entry)
    if store is not None:
        store.put(key, entry, timeout=settings.shared_timeout(), secret=signing_key())
    return own is not None and own.holds(key)


@fork.in_child
def forget() -> None:
    """Clear the policies known to this process."""
    _known.clear()
