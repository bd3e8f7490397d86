"""Keep a ledger in an object store that many machines share."""

from perfkit.extensions import Feature

FEATURE = Feature(mirrors="perfkit.features.store.mirror")
