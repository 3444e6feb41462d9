import type { JsonValue } from '#protocol/json';

export interface Alteration {
  /** What was done, and where. */
  what: string;
  document: JsonValue;
}

type Path = (string | number)[];

/**
 * The document with one thing changed, in every place and every way: values, members left out,
 * members added, items left out, doubled and swapped.
 */
export function* alterations(
  document: JsonValue,
  /** Words that may stand for each other without breaking the document's form. */
  words: readonly (readonly string[])[] = [],
): Generator<Alteration> {
  for (const path of places(document)) {
    const value = at(document, path);
    const kin = words.flatMap((group) =>
      typeof value === 'string' && group.includes(value) ? group : [],
    );
    const replaced = kin.map((word): [string, JsonValue] => [word, word]);
    for (const [how, replacement] of [...replacements(value), ...replaced]) {
      const altered = put(document, path, replacement);
      if (JSON.stringify(altered) === JSON.stringify(document)) continue;
      yield { what: `/${path.join('/')}: ${how}`, document: altered };
    }
  }
}

function* places(value: JsonValue, path: Path = []): Generator<Path> {
  yield path;
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) yield* places(item, [...path, index]);
  } else if (typeof value === 'object' && value !== null) {
    for (const [name, member] of Object.entries(value)) yield* places(member, [...path, name]);
  }
}

function replacements(value: JsonValue): [string, JsonValue][] {
  if (value === null)
    return [
      ['a value for null', 'x'],
      ['zero for null', 0],
    ];
  if (typeof value === 'boolean')
    return [
      ['flipped', !value],
      ['null', null],
    ];
  if (typeof value === 'number') {
    return [
      ['one more', value + 1],
      ['one less', value - 1],
      ['as text', String(value)],
    ];
  }
  if (typeof value === 'string') return [...texts(value), ['null', null]];
  if (Array.isArray(value)) {
    return [
      ['another item', [...value, value[0] ?? 'x']],
      ...value.map((_, i): [string, JsonValue] => [
        `without ${i}`,
        value.filter((__, j) => j !== i),
      ]),
      ...value
        .slice(1)
        .map((item, i): [string, JsonValue] => [
          `${i} and ${i + 1} swapped`,
          value.map((kept, j) => (j === i ? item : j === i + 1 ? (value[i] ?? null) : kept)),
        ]),
    ];
  }
  const names = Object.keys(value);
  return [
    ['another member', { ...value, another: 'x' }],
    ...names.map((name): [string, JsonValue] => [
      `without ${name}`,
      Object.fromEntries(Object.entries(value).filter(([kept]) => kept !== name)),
    ]),
  ];
}

function texts(text: string): [string, JsonValue][] {
  const places = [...new Set([0, Math.floor(text.length / 2), text.length - 1])];
  return [
    ['empty', ''],
    ['longer', `${text}0`],
    ['shorter', text.slice(0, -1)],
    ...places.map((i): [string, JsonValue] => [
      `another character at ${i}`,
      text.slice(0, i) + other(text.charAt(i)) + text.slice(i + 1),
    ]),
  ];
}

/** A neighbour of the same kind, so that the form of the text mostly stays what it was. */
function other(character: string): string {
  if (/[0-8]/.test(character)) return String(Number(character) + 1);
  if (character === '9') return '8';
  if (/[a-eA-Y]/.test(character)) return String.fromCharCode(character.charCodeAt(0) + 1);
  return character === 'f' ? 'e' : 'A';
}

function at(document: JsonValue, path: Path): JsonValue {
  return path.reduce<JsonValue>((value, step) => (value as never)[step], document);
}

function put(document: JsonValue, path: Path, value: JsonValue): JsonValue {
  const [step, ...rest] = path;
  if (step === undefined) return value;
  if (Array.isArray(document)) {
    return document.map((item, index) => (index === step ? put(item, rest, value) : item));
  }
  const members = document as Record<string, JsonValue>;
  return { ...members, [step]: put(members[String(step)] ?? null, rest, value) };
}
