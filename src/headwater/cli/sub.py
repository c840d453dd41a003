"""`headwater sub`: print messages with the options of mosquitto_sub."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.connection import ConnectionOptions, Qos, on_signals, run, with_connection_options
from headwater.cli.failure import TIMED_OUT, complain, forget_output

if TYPE_CHECKING:
    from collections.abc import Callable

    from headwater.client import Client, Message, Properties


@with_connection_options
def sub(
    connection: ConnectionOptions,
    topics: Annotated[list[str] | None, typer.Option("-t", "--topic", help="Topic filter; may be repeated.")] = None,
    filter_out: Annotated[
        list[str] | None, typer.Option("-T", "--filter-out", help="Filter of topics not to show.")
    ] = None,
    unsubscribe: Annotated[list[str] | None, typer.Option("-U", "--unsubscribe", help="Filter to unsubscribe.")] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="CONDITION", help='Only messages for which this holds: "value > 30".'),
    ] = None,
    qos: Qos = 0,
    count: Annotated[int, typer.Option("-C", min=0, help="Leave after so many messages; 0: never.")] = 0,
    timeout: Annotated[float, typer.Option("-W", min=0, help="Leave after so many seconds, with status 27.")] = 0,
    only_subscribe: Annotated[bool, typer.Option("-E", help="Leave when the broker has subscribed us.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print the topic, too.")] = False,
    format: Annotated[str | None, typer.Option("-F", help="Format: %t topic, %p payload, %q, %r, %j JSON …")] = None,
    pretty: Annotated[bool, typer.Option("--pretty", help="JSON on several lines.")] = False,
    no_newline: Annotated[bool, typer.Option("-N", help="No newline after a message.")] = False,
    no_retained: Annotated[bool, typer.Option("-R", help="Do not print retained messages.")] = False,
    retained_only: Annotated[bool, typer.Option("--retained-only", help="Leave at the first not retained.")] = False,
    remove_retained: Annotated[bool, typer.Option("--remove-retained", help="Clear retained messages seen.")] = False,
) -> None:
    """Subscribe and print what arrives, until told to stop; a lost connection is made again. The options are those of
    mosquitto_sub."""
    from headwater.cli.output import compile_format
    from headwater.cli.properties import parse_properties
    from headwater.client import Reconnect

    target = connection.target()
    properties = parse_properties(connection.property_options or [])
    filters = [*(topics or []), *([target.topic] if target.topic else [])]
    if not filters and not unsubscribe:
        raise typer.BadParameter("a topic filter is missing; give -t or a URL (-L) with one.")
    for each in [*filters, *(filter_out or []), *(unsubscribe or [])]:
        check_filter(each)
    if where is not None:
        check_condition(where, connection.version)
    if no_retained and retained_only:
        raise typer.BadParameter("-R and --retained-only together leave nothing to print.")
    shown = compile_format(format or ("%t %p" if verbose else "%p"), pretty=pretty)
    client = connection.make_client(properties, reconnect=Reconnect())
    subscriber = Subscriber(client, properties, connection.quiet)
    subscriber.print = lambda message: _write(shown(message) + (b"" if no_newline else b"\n"))
    subscriber.filter_out = filter_out or []
    subscriber.count = count
    subscriber.where = where
    subscriber.no_retained = no_retained
    subscriber.retained_only = retained_only
    subscriber.remove_retained = remove_retained
    work = subscriber.run(filters, qos, unsubscribe or [], only_subscribe, timeout)
    try:
        status = run("sub", work, connection)
        sys.stdout.flush()
    except BrokenPipeError:  # `headwater sub … | head`: nobody wants more
        forget_output()
        status = 0
    raise typer.Exit(status)


def check_filter(filter: str) -> None:
    from headwater.routing.conditions.written import parts_of
    from headwater.routing.topics import ANY_LEVELS, InvalidTopicFilter, split_shared
    from headwater.routing.topics import check_filter as check

    try:
        check(split_shared(parts_of(filter)[0])[1], ANY_LEVELS)
    except InvalidTopicFilter as error:
        raise typer.BadParameter(f"{filter!r} is not a topic filter: {error}.") from None


def check_condition(text: str, version: str) -> None:
    from headwater.routing.conditions.condition import condition_of
    from headwater.routing.conditions.errors import ConditionError

    if version not in ("5", "mqttv5"):
        raise typer.BadParameter("--where needs MQTT 5; leave out -V, or write -t 'topic?condition'.")
    try:
        condition_of(text)
    except ConditionError as error:
        raise typer.BadParameter(f"--where: {error}.") from None


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)


class Subscriber:
    """Takes messages until there were enough, time is over or somebody says stop."""

    def __init__(self, client: Client, properties: dict[str, Properties], quiet: bool) -> None:
        self._client = client
        self._properties = properties
        self._quiet = quiet
        self.print: Callable[[Message], None]
        self.filter_out: list[str] = []
        self.count = 0
        self.where: str | None = None
        self.no_retained = False
        self.retained_only = False
        self.remove_retained = False

    async def run(
        self, filters: list[str], qos: int, unsubscribe: list[str], only_subscribe: bool, timeout: float
    ) -> int:
        work = asyncio.ensure_future(self._connected(filters, qos, unsubscribe, only_subscribe))
        on_signals(work.cancel)
        try:
            async with asyncio.timeout(timeout or None):
                return await work
        except TimeoutError:
            complain("sub", f"timed out after {timeout:g} seconds.", quiet=self._quiet)
            return TIMED_OUT
        except asyncio.CancelledError:
            return 0

    async def _connected(self, filters: list[str], qos: int, unsubscribe: list[str], only_subscribe: bool) -> int:
        async with self._client as client:
            status = await self._subscribe(client, filters, qos, unsubscribe)
            if status == 0 and not only_subscribe:
                await self._print_messages(client)
            await client.disconnect(properties=self._properties.get("disconnect"))
        return status

    async def _subscribe(self, client: Client, filters: list[str], qos: int, unsubscribe: list[str]) -> int:
        """0, or the reason if the broker refused every filter."""
        from headwater.wire.words import reason_words

        if unsubscribe:
            await client.unsubscribe(unsubscribe, properties=self._properties.get("unsubscribe"))
        if not filters:
            return 0
        granted = await self._ask(client, filters, qos)
        refused = [(filter, reason) for filter, reason in zip(filters, granted, strict=True) if reason > 2]
        for filter, reason in refused:
            complain(
                "sub", f"the broker refused to subscribe us to {filter}: {reason_words(reason)}.", quiet=self._quiet
            )
        return refused[0][1] if len(refused) == len(filters) else 0

    async def _ask(self, client: Client, filters: list[str], qos: int) -> list[int]:
        from headwater.client import Properties

        properties = self._properties.get("subscribe")
        if self.where is None:
            return await client.subscribe(filters, qos=qos, properties=properties)
        properties = properties or Properties()
        properties.user_properties = [*(properties.user_properties or []), ("filter", self.where)]
        answer = await client.subscribe_and_hear(filters, qos=qos, properties=properties)
        said = answer.properties or Properties()
        if said.reason_string:
            complain("sub", f"the broker says: {said.reason_string}.", quiet=self._quiet)
        elif not any(name == "filter" for name, _ in said.user_properties or []):
            complain(
                "sub", "the broker does not say that it applies --where; all messages may come.", quiet=self._quiet
            )
        return answer.reasons

    async def _print_messages(self, client: Client) -> None:
        from headwater.routing.topics import matches

        printed = 0
        async for message in client.messages:
            if self.retained_only and not message.retain:
                return
            if (self.no_retained and message.retain) or any(matches(each, message.topic) for each in self.filter_out):
                continue
            self.print(message)
            printed += 1
            if self.remove_retained and message.retain:
                await client.publish(message.topic, b"", qos=1, retain=True)
            if not len(client.messages):
                sys.stdout.flush()
            if printed == self.count:
                return
