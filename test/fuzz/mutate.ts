/** Reproducible random numbers (mulberry32). */
export class Random {
  constructor(private state: number) {}

  /** 0 to 2^32 - 1 */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  }

  below(end: number): number {
    return this.next() % Math.max(1, end);
  }

  of<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }

  chance(oneIn: number): boolean {
    return this.below(oneIn) === 0;
  }
}

/** Texts that often break parsers. */
const TOKENS = [
  ...'null true 0 -0 -1 1e400 1E30 9007199254740993 1.0 01 +1 0x1 ""'.split(' '),
  ...'"__proto__" "constructor" "\\u0000" "\\ud800" "\\ud83d\\ude00" "\\/"'.split(' '),
  ...'{ } [ ] , : " \\ [[[[[[[[ {"a": {"__proto__":{"polluted":1}} ='.split(' '),
  ...'% %00 %zz %E0%A4%A %2F .. / // ? # & identifier= a=b& + - _ == A==='.split(' '),
  ...'svc_sk_ share_ exec_ proof_id schema_version'.split(' '),
  ...['\n', '\r\n', '\n\n', ' ', '\t', '\0', '\u00a0', '\u2014 ', '\ufeff', '\u2028', '\u202e'],
];

const BYTES = [
  0x00, 0x01, 0x0a, 0x0d, 0x20, 0x22, 0x2c, 0x5b, 0x5c, 0x7b, 0x7f, 0x80, 0xc0, 0xed, 0xff,
];
const LONGEST = 256 * 1024;

type Mutation = (input: Buffer, random: Random, seeds: readonly Uint8Array[]) => Buffer;

function splice(input: Buffer, at: number, removed: number, added: Uint8Array): Buffer {
  return Buffer.concat([input.subarray(0, at), added, input.subarray(at + removed)]);
}

const MUTATIONS: readonly Mutation[] = [
  (input, random) => {
    const copy = Buffer.from(input);
    if (copy.length > 0) copy[random.below(copy.length)]! ^= 1 << random.below(8);
    return copy;
  },
  (input, random) => {
    const copy = Buffer.from(input);
    if (copy.length > 0) copy[random.below(copy.length)] = random.of(BYTES);
    return copy;
  },
  (input, random) =>
    splice(input, random.below(input.length + 1), 0, Buffer.from(random.of(TOKENS))),
  (input, random) =>
    splice(input, random.below(input.length + 1), 1 + random.below(8), Buffer.alloc(0)),
  (input, random) => {
    // A binary number at or next to a limit.
    const at = random.below(input.length + 1);
    const number = Buffer.alloc(4);
    number.writeUInt32LE(random.of([0, 1, 0x7f, 0x80, 0xff, 0x7fffffff, 0x80000000, 0xffffffff]));
    return splice(input, at, 4, number);
  },
  (input, random) => input.subarray(0, random.below(input.length + 1)),
  (input, random) => {
    const [from, length] = [random.below(input.length + 1), random.below(64)];
    return splice(input, random.below(input.length + 1), 0, input.subarray(from, from + length));
  },
  (input, random) => {
    // Repeats or reorders lines and members.
    const lines = input.toString('latin1').split(/(?<=[\n,&])/);
    const line = random.of(lines);
    lines.splice(random.below(lines.length + 1), random.below(2), line);
    return Buffer.from(lines.join(''), 'latin1');
  },
  (input, random, seeds) => {
    const other = random.of(seeds);
    return Buffer.concat([
      input.subarray(0, random.below(input.length + 1)),
      other.subarray(random.below(other.length + 1)),
    ]);
  },
  (input, random) => {
    // Repeats a part, which exposes parsers of quadratic cost.
    const piece = Buffer.from(random.of(TOKENS));
    const many = Buffer.concat(Array.from({ length: 1 << random.below(12) }, () => piece));
    return splice(input, random.below(input.length + 1), 0, many);
  },
  (input, random) => {
    try {
      return Buffer.from(JSON.stringify(mutatedValue(JSON.parse(input.toString()), random)));
    } catch {
      return input;
    }
  },
];

const VALUES: readonly unknown[] = [
  ...[null, true, 0, -0, 1e30, -1, 2 ** 53, 0.5, '', 'a', '\0', '\ud800', [], {}, [[]]],
  ...['2026-11-20T17:29:00.123Z', 'f'.repeat(64), 'A'.repeat(43), 'svc.aep/1.1', 'x'.repeat(600)],
];

/** A document with one changed value, name or member. */
function mutatedValue(value: unknown, random: Random): unknown {
  if (typeof value !== 'object' || value === null || random.chance(6)) return random.of(VALUES);
  if (Array.isArray(value)) {
    const items: unknown[] = [...(value as unknown[])];
    const at = random.below(items.length + 1);
    items.splice(at, 1, at < items.length ? mutatedValue(items[at], random) : random.of(VALUES));
    return items;
  }
  const members = Object.entries(value as Record<string, unknown>);
  const at = random.below(members.length);
  const [name, old] = members[at] ?? ['new', null];
  if (random.chance(6)) members.splice(at, 1);
  else if (random.chance(6)) members.push([random.of(['__proto__', 'x', '', name + ' ']), old]);
  else members[at] = [name, mutatedValue(old, random)];
  // Assignment would not create a member named __proto__.
  return Object.fromEntries(members);
}

/** Changes a seed in a few places. */
export function mutate(seeds: readonly Uint8Array[], random: Random): Uint8Array {
  let input = Buffer.from(random.of(seeds));
  for (let rounds = random.below(5); rounds >= 0; rounds -= 1) {
    input = Buffer.from(random.of(MUTATIONS)(input, random, seeds));
  }
  return new Uint8Array(input.subarray(0, LONGEST));
}
