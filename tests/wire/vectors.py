"""Packets as data: whole packets in hexadecimal, first byte, remaining length and fields, and what they mean."""

from __future__ import annotations

from typing import NamedTuple

from headwater.wire import FROM_CLIENT, FROM_SERVER, V5, V31, V311
from headwater.wire.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
    Will,
)

C = FROM_CLIENT
S = FROM_SERVER


class Good(NamedTuple):
    """`shortest` if this is also how the packet is written."""

    name: str
    version: int
    role: int
    hex: str
    packet: Packet
    shortest: bool = True


# fmt: off
GOOD = [
    # CONNECT
    Good("3.1.1 CONNECT, smallest", V311, C, "10 0c 00044d515454 04 02 0000 0000", Connect()),
    Good("3.1.1 CONNECT, session kept", V311, C, "10 10 00044d515454 04 00 003c 000464657631",
         Connect("dev1", clean_start=False, keep_alive=60)),
    Good("3.1.1 CONNECT, user name only", V311, C, "10 10 00044d515454 04 82 003c 000163 000175",
         Connect("c", keep_alive=60, username="u")),
    Good("3.1.1 CONNECT, user name and password", V311, C, "10 14 00044d515454 04 c2 003c 000163 000175 000200ff",
         Connect("c", keep_alive=60, username="u", password=b"\x00\xff")),
    Good("3.1.1 CONNECT, empty user name and password", V311, C, "10 11 00044d515454 04 c2 ffff 000163 0000 0000",
         Connect("c", keep_alive=65535, username="", password=b"")),
    Good("3.1.1 CONNECT, will with QoS 2, retained", V311, C,
         "10 17 00044d515454 04 36 0001 000163 0003772f74 0003627965",
         Connect("c", keep_alive=1, will=Will("w/t", b"bye", 2, True))),
    Good("3.1.1 CONNECT, will without payload", V311, C, "10 12 00044d515454 04 0e 0001 000163 000177 0000",
         Connect("c", keep_alive=1, will=Will("w", qos=1))),
    Good("5.0 CONNECT, smallest", V5, C, "10 0d 00044d515454 05 00 0000 00 0000",
         Connect(version=V5, clean_start=False)),
    Good("3.1 CONNECT", V311, C, "10 0f 00064d5149736470 03 02 000a 000163", Connect("c", V31, keep_alive=10)),
    Good("3.1 CONNECT of a bridge", V311, C, "10 0f 00064d5149736470 83 02 0000 000163",
         Connect("c", V31, bridge=True)),
    Good("3.1.1 CONNECT of a bridge", V311, C, "10 0d 00044d515454 84 02 0000 000163", Connect("c", bridge=True)),
    Good("5.0 CONNECT, every property", V5, C,
         "10 35 00044d515454 05 02 000a 27 11 00000e10 22 000a 15 0005534352414d 16 000100 17 00 19 01 27 "
         "00000400 21 0014 26 00016b 000176 000163",
         Connect("c", V5, keep_alive=10, properties=Properties(session_expiry_interval=3600,
         authentication_method="SCRAM", authentication_data=b"\0", request_problem_information=0,
         request_response_information=1, receive_maximum=20, topic_alias_maximum=10, user_properties=[("k", "v")],
         maximum_packet_size=1024))),
    Good("5.0 CONNECT, password without user name", V5, C, "10 12 00044d515454 05 42 0000 00 000163 00027077",
         Connect("c", V5, password=b"pw")),
    Good("5.0 CONNECT, will with every property", V5, C,
         "10 4c 00044d515454 05 2e 0000 00 000163 35 01 01 02 0000003c 03 000a746578742f706c61696e 08 "
         "000672652f706c79 09 00020102 18 0000001e 26 000161 000162 26 000161 000163 000177 0003627965",
         Connect("c", V5, will=Will("w", b"bye", 1, True, Properties(payload_format_indicator=1,
         message_expiry_interval=60, content_type="text/plain", response_topic="re/ply", correlation_data=b"\1\2",
         will_delay_interval=30, user_properties=[("a", "b"), ("a", "c")])))),
    Good("5.0 CONNECT, properties in another order", V5, C,
         "10 24 00044d515454 05 02 0000 16 26 00016b 000176 21 0014 26 00016a 000177 11 00000001 000163",
         Connect("c", V5, properties=Properties(session_expiry_interval=1, receive_maximum=20, user_properties=[("k",
         "v"), ("j", "w")])), shortest=False),
    Good("5.0 CONNECT, U+FEFF stays in a string", V5, C, "10 11 00044d515454 05 02 0000 00 0004efbbbf61",
         Connect("\ufeffa", V5)),
    # CONNACK
    Good("3.1.1 CONNACK, accepted", V311, S, "20 02 00 00", Connack()),
    Good("3.1.1 CONNACK, session present", V311, S, "20 02 01 00", Connack(True)),
    Good("3.1.1 CONNACK, refused", V311, S, "20 02 00 05", Connack(reason=5)),
    Good("5.0 CONNACK, accepted", V5, S, "20 03 00 00 00", Connack()),
    Good("5.0 CONNACK, not authorized", V5, S, "20 08 00 87 05 1f 00026e6f",
         Connack(reason=0x87, properties=Properties(reason_string="no"))),
    Good("5.0 CONNACK, every property", V5, S,
         "20 4d 01 00 4a 11 ffffffff 22 ffff 12 00066175746f2d31 13 001e 15 00014d 16 0000 1a 0002722f 1c "
         "000a6f746865723a31383833 1f 00026f6b 25 01 27 ffffffff 21 ffff 24 01 28 00 29 00 2a 00 26 00016b "
         "0000",
         Connack(True, 0, Properties(session_expiry_interval=0xFFFFFFFF, assigned_client_identifier="auto-1",
         server_keep_alive=30, authentication_method="M", authentication_data=b"", response_information="r/",
         server_reference="other:1883", reason_string="ok", receive_maximum=65535, topic_alias_maximum=65535,
         maximum_qos=1, retain_available=1, user_properties=[("k", "")], maximum_packet_size=0xFFFFFFFF,
         wildcard_subscription_available=0, subscription_identifier_available=0, shared_subscription_available=0))),
    # PUBLISH
    Good("3.1.1 PUBLISH, QoS 0", V311, C, "30 07 0003612f62 6869", Publish("a/b", b"hi")),
    Good("3.1.1 PUBLISH, QoS 0, retained, no payload", V311, C, "31 05 0003612f62", Publish("a/b", retain=True)),
    Good("3.1.1 PUBLISH, QoS 1", V311, C, "32 07 000161 000a 6869", Publish("a", b"hi", 1, packet_id=10)),
    Good("3.1.1 PUBLISH, QoS 2, DUP, retained", V311, S, "3d 05 000161 ffff",
         Publish("a", b"", 2, True, True, 65535)),
    Good("3.1.1 PUBLISH, slashes alone and spaces", V311, C, "30 05 00032f202f", Publish("/ /")),
    Good("3.1.1 PUBLISH, four-byte character", V311, C, "30 06 0004f09f8caa", Publish("\U0001f32a")),
    Good("5.0 PUBLISH, QoS 0", V5, C, "30 06 000161 00 6869", Publish("a", b"hi")),
    Good("5.0 PUBLISH, QoS 1 with every property of a client", V5, C,
         "32 23 000161 0001 1b 01 00 02 ffffffff 03 0000 08 000172 09 0000 23 0001 26 00016b 000176 00ff",
         Publish("a", b"\x00\xff", 1, packet_id=1, properties=Properties(payload_format_indicator=0,
         message_expiry_interval=0xFFFFFFFF, content_type="", response_topic="r", correlation_data=b"",
         topic_alias=1, user_properties=[("k", "v")]))),
    Good("5.0 PUBLISH, topic alias instead of a topic", V5, C, "30 07 0000 03 23 ffff 78",
         Publish("", b"x", properties=Properties(topic_alias=65535))),
    Good("5.0 PUBLISH, several subscription identifiers", V5, S, "30 0f 000161 0a 0b 01 0b ffffff7f 0b 8001 78",
         Publish("a", b"x", properties=Properties(subscription_identifiers=[1, 268435455, 128]))),
    Good("5.0 PUBLISH, user property repeated in order", V5, S,
         "30 19 000161 15 26 00016b 000132 26 00016b 000131 26 00016b 000132",
         Publish("a", properties=Properties(user_properties=[("k", "2"), ("k", "1"), ("k", "2")]))),
    # PUBACK, PUBREC, PUBREL, PUBCOMP
    Good("3.1.1 PUBACK", V311, C, "40 02 0001", Puback(1)),
    Good("5.0 PUBACK, nothing but the identifier", V5, C, "40 02 ffff", Puback(65535)),
    Good("5.0 PUBACK, reason without properties", V5, S, "40 03 0001 10", Puback(1, 0x10)),
    Good("5.0 PUBACK, success spelled out", V5, S, "40 04 0001 00 00", Puback(1), shortest=False),
    Good("5.0 PUBACK, every property", V5, S, "40 11 0001 10 0d 1f 0003776879 26 00016b 000176",
         Puback(1, 0x10, Properties(reason_string="why", user_properties=[("k", "v")]))),
    Good("3.1.1 PUBREC", V311, C, "50 02 0001", Pubrec(1)),
    Good("5.0 PUBREC, nothing but the identifier", V5, C, "50 02 ffff", Pubrec(65535)),
    Good("5.0 PUBREC, reason without properties", V5, S, "50 03 0001 10", Pubrec(1, 0x10)),
    Good("5.0 PUBREC, success spelled out", V5, S, "50 04 0001 00 00", Pubrec(1), shortest=False),
    Good("5.0 PUBREC, every property", V5, S, "50 11 0001 10 0d 1f 0003776879 26 00016b 000176",
         Pubrec(1, 0x10, Properties(reason_string="why", user_properties=[("k", "v")]))),
    Good("3.1.1 PUBREL", V311, C, "62 02 0001", Pubrel(1)),
    Good("5.0 PUBREL, nothing but the identifier", V5, C, "62 02 ffff", Pubrel(65535)),
    Good("5.0 PUBREL, reason without properties", V5, S, "62 03 0001 92", Pubrel(1, 0x92)),
    Good("5.0 PUBREL, success spelled out", V5, S, "62 04 0001 00 00", Pubrel(1), shortest=False),
    Good("5.0 PUBREL, every property", V5, S, "62 11 0001 92 0d 1f 0003776879 26 00016b 000176",
         Pubrel(1, 0x92, Properties(reason_string="why", user_properties=[("k", "v")]))),
    Good("3.1.1 PUBCOMP", V311, C, "70 02 0001", Pubcomp(1)),
    Good("5.0 PUBCOMP, nothing but the identifier", V5, C, "70 02 ffff", Pubcomp(65535)),
    Good("5.0 PUBCOMP, reason without properties", V5, S, "70 03 0001 92", Pubcomp(1, 0x92)),
    Good("5.0 PUBCOMP, success spelled out", V5, S, "70 04 0001 00 00", Pubcomp(1), shortest=False),
    Good("5.0 PUBCOMP, every property", V5, S, "70 11 0001 92 0d 1f 0003776879 26 00016b 000176",
         Pubcomp(1, 0x92, Properties(reason_string="why", user_properties=[("k", "v")]))),
    # SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK
    Good("3.1.1 SUBSCRIBE, two filters", V311, C, "82 0e 000a 0003612f23 01 00032b2f62 02",
         Subscribe(10, [SubscribeRequest("a/#", 1), SubscribeRequest("+/b", 2)])),
    Good("5.0 SUBSCRIBE, every option", V5, C,
         "82 22 0001 0a 0b 8001 26 00016b 000176 000161 00 000162 2d 000a2473686172652f672f63 1a",
         Subscribe(1, [SubscribeRequest("a"), SubscribeRequest("b", 1, True, True, 2), SubscribeRequest("$share/g/c",
         2, False, True, 1)], Properties(subscription_identifiers=[128], user_properties=[("k", "v")]))),
    Good("5.0 SUBSCRIBE, misplaced wildcard is left to SUBACK", V5, C, "82 0b 0001 00 0005612f232f62 00",
         Subscribe(1, [SubscribeRequest("a/#/b")])),
    Good("3.1.1 SUBACK", V311, S, "90 06 000a 00 01 02 80", Suback(10, [0, 1, 2, 0x80])),
    Good("5.0 SUBACK", V5, S, "90 08 000a 00 00 01 02 8f a2", Suback(10, [0, 1, 2, 0x8F, 0xA2])),
    Good("5.0 SUBACK, every property", V5, S, "90 0f 000a 0b 1f 000178 26 00016b 000176 87",
         Suback(10, [0x87], Properties(reason_string="x", user_properties=[("k", "v")]))),
    Good("3.1.1 UNSUBSCRIBE", V311, C, "a2 0a 0001 000161 0003622f23", Unsubscribe(1, ["a", "b/#"])),
    Good("5.0 UNSUBSCRIBE", V5, C, "a2 0d 0001 07 26 00016b 000176 000161",
         Unsubscribe(1, ["a"], Properties(user_properties=[("k", "v")]))),
    Good("3.1.1 UNSUBACK", V311, S, "b0 02 0001", Unsuback(1)),
    Good("5.0 UNSUBACK", V5, S, "b0 05 0001 00 00 11", Unsuback(1, [0, 0x11])),
    Good("5.0 UNSUBACK, every property", V5, S, "b0 0f 0001 0b 1f 000178 26 00016b 000176 87",
         Unsuback(1, [0x87], Properties(reason_string="x", user_properties=[("k", "v")]))),
    # PINGREQ, PINGRESP, DISCONNECT, AUTH
    Good("3.1.1 PINGREQ", V311, C, "c0 00", Pingreq()),
    Good("5.0 PINGREQ", V5, C, "c0 00", Pingreq()),
    Good("3.1.1 PINGRESP", V311, S, "d0 00", Pingresp()),
    Good("5.0 PINGRESP", V5, S, "d0 00", Pingresp()),
    Good("3.1.1 DISCONNECT", V311, C, "e0 00", Disconnect()),
    Good("5.0 DISCONNECT, normal", V5, C, "e0 00", Disconnect()),
    Good("5.0 DISCONNECT, normal with reason code", V5, C, "e0 01 00", Disconnect(), shortest=False),
    Good("5.0 DISCONNECT, normal spelled out", V5, C, "e0 02 00 00", Disconnect(), shortest=False),
    Good("5.0 DISCONNECT, with will", V5, C, "e0 01 04", Disconnect(4)),
    Good("5.0 DISCONNECT, every property of a client", V5, C,
         "e0 14 00 12 11 0000003c 1f 0003627965 26 00016b 000176",
         Disconnect(0, Properties(session_expiry_interval=60, reason_string="bye", user_properties=[("k", "v")]))),
    Good("5.0 DISCONNECT, server moved", V5, S, "e0 0d 9d 0b 1c 0003623a31 1f 0002676f",
         Disconnect(0x9D, Properties(server_reference="b:1", reason_string="go"))),
    Good("5.0 DISCONNECT, taken over", V5, S, "e0 01 8e", Disconnect(0x8E)),
    Good("5.0 AUTH, success in two bytes", V5, S, "f0 00", Auth()),
    Good("5.0 AUTH, success with reason code", V5, S, "f0 01 00", Auth(), shortest=False),
    Good("5.0 AUTH, continue", V5, C, "f0 18 18 16 15 00014d 16 000464617461 1f 000172 26 00016b 000176",
         Auth(0x18, Properties(authentication_method="M", authentication_data=b"data", reason_string="r",
         user_properties=[("k", "v")]))),
    Good("5.0 AUTH, re-authenticate", V5, C, "f0 06 19 04 15 00014d",
         Auth(0x19, Properties(authentication_method="M"))),
]
# fmt: on
