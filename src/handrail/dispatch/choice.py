"""Which dispatcher a store has when nobody names one."""

from __future__ import annotations

from typing import Any

from handrail import plugins
from handrail.dispatch.port import Dispatcher, Timing
from handrail.errors import ConfigError
from handrail.stores.durable import DurableStore


def open_dispatcher(
    store: Any, name: str = "", *, timing: Timing | None = None
) -> Dispatcher:
    """Return a dispatcher for the runs of a store.

    Args:
        store: A durable store; it stays open when the dispatcher is closed.
        name: `lease`, or the name of an entry point of the group `handrail.dispatchers`: a callable that takes the
            store and a keyword `timing`. Empty for the default of the store.
        timing: How soon things are noticed.

    Raises:
        ConfigError: No dispatcher has this name, or the store has none.
    """
    if not isinstance(store, DurableStore):
        raise ConfigError(
            "segments need a durable store: sqlite:///FILE or postgresql://HOST/DATABASE"
        )
    make = plugins.load("dispatchers", name or "lease")
    dispatcher: Dispatcher = make(store, timing=timing)
    return dispatcher
