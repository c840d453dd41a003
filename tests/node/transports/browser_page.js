// Runs in a real browser: a small MQTT client on the browser's own WebSocket, and the scenarios of test_browser.py.
// The page asks its server for work (`/next`), runs the scenario it is told and sends back what happened (`/result`).
"use strict";

const PATIENCE = 15000;

const utf8 = (text) => {
  const bytes = new TextEncoder().encode(text);
  return [bytes.length >> 8, bytes.length & 255, ...bytes];
};

const packet = (first, ...parts) => {
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  const head = [first];
  let rest = size;
  do {
    head.push((rest & 127) | (rest > 127 ? 128 : 0));
    rest >>= 7;
  } while (rest > 0);
  const whole = new Uint8Array(head.length + size);
  whole.set(head);
  let at = head.length;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
};

// Payloads as the test makes them too: byte n is n * 7 + 3.
const pattern = (size) => Uint8Array.from({ length: size }, (_, n) => (n * 7 + 3) & 255);
const isPattern = (bytes) => bytes.every((byte, n) => byte === ((n * 7 + 3) & 255));

class Mqtt {
  constructor(url, version, protocol = "mqtt") {
    this.version = version;
    this.buffer = new Uint8Array(0);
    this.packets = [];
    this.frames = 0;
    this.waiting = null;
    this.socket = new WebSocket(url, protocol);
    this.socket.binaryType = "arraybuffer";
    this.opened = new Promise((good, bad) => {
      this.socket.onopen = good;
      this.socket.onerror = () => bad(new Error("the browser says: error"));
    });
    this.closed = new Promise((good) => {
      this.socket.onclose = (event) => {
        good({ code: event.code, clean: event.wasClean });
        this.wake();
      };
    });
    this.socket.onmessage = (event) => this.arrived(new Uint8Array(event.data));
  }

  arrived(bytes) {
    this.frames += 1;
    const joined = new Uint8Array(this.buffer.length + bytes.length);
    joined.set(this.buffer);
    joined.set(bytes, this.buffer.length);
    this.buffer = joined;
    for (;;) {
      let size = 0;
      let at = 1;
      let shift = 0;
      do {
        if (at >= this.buffer.length) return;
        size |= (this.buffer[at] & 127) << shift;
        shift += 7;
      } while (this.buffer[at++] & 128);
      if (this.buffer.length < at + size) return;
      this.packets.push({ first: this.buffer[0], body: this.buffer.slice(at, at + size) });
      this.buffer = this.buffer.slice(at + size);
      this.wake();
    }
  }

  wake() {
    if (this.waiting !== null) this.waiting();
  }

  // The next packet of a kind (the high half of its first byte); others stay where they are.
  async expect(kind) {
    const until = Date.now() + PATIENCE;
    for (;;) {
      const at = this.packets.findIndex((each) => each.first >> 4 === kind);
      if (at >= 0) return this.packets.splice(at, 1)[0];
      if (Date.now() > until) throw new Error(`no packet of kind ${kind}; there are ${this.packets.length} others`);
      await new Promise((good) => {
        this.waiting = good;
        setTimeout(good, 100);
      });
    }
  }

  connectPacket(clientId) {
    const properties = this.version === 5 ? [0] : [];
    return packet(0x10, utf8("MQTT"), [this.version, 2, 0, 60], properties, utf8(clientId));
  }

  async connect(clientId) {
    await this.opened;
    this.socket.send(this.connectPacket(clientId));
    const answer = await this.expect(2);
    if (answer.body[1] !== 0) throw new Error(`CONNACK ${answer.body[1]}`);
  }

  async subscribe(filter, qos) {
    const properties = this.version === 5 ? [0] : [];
    this.socket.send(packet(0x82, [0, 9], properties, utf8(filter), [qos]));
    const answer = await this.expect(9);
    return answer.body[answer.body.length - 1];
  }

  publication(topic, payload, qos, id) {
    const properties = this.version === 5 ? [0] : [];
    return packet(0x30 | (qos << 1), utf8(topic), qos > 0 ? [id >> 8, id & 255] : [], properties, payload);
  }

  // The next message; it is acknowledged.
  async message() {
    const { first, body } = await this.expect(3);
    const qos = (first >> 1) & 3;
    let at = 2 + body[0] * 256 + body[1];
    const topic = new TextDecoder().decode(body.slice(2, at));
    if (qos > 0) {
      const kind = qos === 1 ? 0x40 : 0x50;
      this.socket.send(new Uint8Array([kind, 2, body[at], body[at + 1]]));
      at += 2;
    }
    if (this.version === 5) at += 1 + body[at];
    return { topic, qos, payload: body.slice(at) };
  }

  async disconnect() {
    this.socket.send(new Uint8Array([0xe0, 0]));
    this.socket.close(1000);
    return await this.closed;
  }
}

const scenarios = {
  // Messages of several sizes to oneself, with QoS 1, each packet in one send.
  async messages({ url, version, sizes }) {
    const client = new Mqtt(url, version);
    await client.connect("browser");
    const granted = await client.subscribe("browser/#", 1);
    const got = [];
    for (const [number, size] of sizes.entries()) {
      client.socket.send(client.publication(`browser/${size}`, pattern(size), 1, number + 1));
      const message = await client.message();
      const acknowledged = await client.expect(4);
      got.push([message.topic, message.qos, message.payload.length, isPattern(message.payload), acknowledged.body[1]]);
    }
    return { protocol: client.socket.protocol, granted, got, closed: await client.disconnect() };
  },

  // A packet cut into pieces of a few bytes and many kilobytes, each a frame of its own; then many packets in one frame.
  async pieces({ url, version, size }) {
    const client = new Mqtt(url, version);
    await client.opened;
    for (const byte of client.connectPacket("browser")) client.socket.send(new Uint8Array([byte]));
    await client.expect(2);
    await client.subscribe("t", 1);
    const whole = client.publication("t", pattern(size), 1, 1);
    for (let at = 0, length = 1; at < whole.length; at += length, length *= 3) {
      client.socket.send(whole.slice(at, at + length));
    }
    const large = await client.message();
    const many = [];
    for (let number = 0; number < 50; number++) many.push(...client.publication("t", pattern(number), 0, 0));
    const before = client.frames;
    client.socket.send(new Uint8Array(many));
    const lengths = [];
    for (let number = 0; number < 50; number++) lengths.push((await client.message()).payload.length);
    const frames = client.frames - before;
    return { large: [large.payload.length, isPattern(large.payload)], lengths, frames, closed: await client.disconnect() };
  },

  // Subscribe, say so with a retained message, and return the first message that comes.
  async exchange({ url, version, size }) {
    const client = new Mqtt(url, version);
    await client.connect("browser");
    await client.subscribe("to/browser", 1);
    client.socket.send(client.publication("from/browser", pattern(size), 1, 1));
    await client.expect(4);
    const message = await client.message();
    return { got: [message.topic, message.payload.length, isPattern(message.payload)], closed: await client.disconnect() };
  },

  // Whether the browser lets us in at all.
  async open({ url, protocol }) {
    const client = new Mqtt(url, 5, protocol);
    const opened = await client.opened.then(() => true, () => false);
    if (opened) client.socket.close(1000);
    return { opened, closed: await client.closed };
  },

  // A second CONNECT is a protocol error: the server says so and closes.
  async ended({ url }) {
    const client = new Mqtt(url, 5);
    await client.connect("browser");
    client.socket.send(client.connectPacket("browser"));
    const last = await client.expect(14);
    return { reason: last.body[0], closed: await client.closed };
  },
};

const work = async () => {
  for (;;) {
    const response = await fetch("/next");
    if (response.status !== 200) continue;
    const job = await response.json();
    let result;
    try {
      result = await scenarios[job.name](job.arguments);
    } catch (error) {
      result = { error: String(error) };
    }
    await fetch("/result", { method: "POST", body: JSON.stringify(result) });
  }
};

work();
