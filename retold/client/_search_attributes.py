"""The search attributes by which reviews are listed in Temporal: which are missing, and registering them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

from retold.contracts import names

logger = logging.getLogger(__name__)

_KEYWORD = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
_TIMEOUT = timedelta(seconds=10)


async def missing_review_attributes(client: Client) -> Sequence[str]:
    """Which of them the namespace lacks, or has under another type.

    Raises:
        RPCError: the server does not say.
    """
    found = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace), timeout=_TIMEOUT
    )
    return [name for name in names.REVIEW_ATTRIBUTES if found.custom_attributes.get(name) != _KEYWORD]


async def register_review_attributes(client: Client) -> Sequence[str]:
    """Register what is missing; which those were. Again: nothing happens.

    Raises:
        RPCError: the server refuses, because the caller may not, or one exists under another type.
    """
    missing = await missing_review_attributes(client)
    if missing:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=client.namespace, search_attributes={name: _KEYWORD for name in missing}
            ),
            timeout=_TIMEOUT,
        )
    return missing


async def prepare_review_attributes(client: Client) -> None:
    """Register what is missing before workflows need it. Where that is not allowed, say so and go on: reviews work
    without, Temporal's page only cannot filter by them."""
    try:
        await register_review_attributes(client)
    except RPCError as error:
        logger.warning(
            "search attributes of reviews are not registered (%s): have somebody who may run `retold review setup`",
            error.message,
        )
