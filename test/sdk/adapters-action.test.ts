import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { actionSchema } from '#protocol/schemas/primitives';
import { actionOf } from '#sdk/adapters/index';
import { plainHash } from '#sdk/adapters/plain-json';
import { canonicalHash, SdkError } from '#sdk/index';
import { packageRoot } from '#runtime/process/files';

/** The Python package has the same results. */
const vectors = JSON.parse(
  readFileSync(join(packageRoot, 'test/vectors/tool-calls.json'), 'utf8'),
) as {
  actions: { tool: string; action: string | null }[];
  arguments: { arguments: string; hash: string }[];
};

describe('actionOf', () => {
  it.each(vectors.actions)('converts the tool name $tool', ({ tool, action }) => {
    const convert = () => actionOf(tool);
    if (action !== null) expect(convert()).toBe(action);
    else expect(convert).toThrow(expect.objectContaining({ code: 'invalid_input' }));
  });

  it('returns a valid and deterministic action for every name', () => {
    fc.assert(
      fc.property(
        fc.oneof(fc.string({ unit: 'binary' }), fc.string({ maxLength: 300 })),
        (tool) => {
          let action: string;
          try {
            action = actionOf(tool);
          } catch (error) {
            expect(error).toBeInstanceOf(SdkError);
            return;
          }
          expect(actionSchema.safeParse(action).success).toBe(true);
          expect(actionOf(tool)).toBe(action);
          expect(actionOf(action)).toBe(action);
        },
      ),
      { numRuns: 2_000 },
    );
  });
});

interface Booking {
  seats: number;
  guest?: { name: string };
}

describe('canonicalHash', () => {
  it('accepts a value whose type is a TypeScript interface', () => {
    const booking: Booking = { seats: 2, guest: { name: 'Ada' } };
    expect(canonicalHash(booking)).toBe(canonicalHash({ guest: { name: 'Ada' }, seats: 2 }));
  });

  it.each([
    ['/due', { due: new Date(0) }],
    ['/seats', { seats: new Map([[1, 2]]) }],
    ['/seats', { seats: undefined }],
    ['/seats', { seats: 2n }],
    ['/0', [NaN]],
    ['', new (class Booking {})()],
    ['', JSON.parse('['.repeat(100_000) + ']'.repeat(100_000)) as object],
  ])('rejects a value that is not plain JSON, at %j', (pointer, value) => {
    const invalid = expect.objectContaining({ code: 'invalid_input', pointer }) as Error;
    expect(() => canonicalHash(value)).toThrow(invalid);
  });

  it('reports a value that cannot be read', () => {
    const value = {
      get seats(): number {
        throw new Error('mine');
      },
    };
    expect(() => canonicalHash(value)).toThrow('/: has no JSON form');
  });
});

it.each(vectors.arguments)(
  'plainHash > hashes the arguments $arguments',
  ({ arguments: text, hash }) => {
    expect(plainHash(JSON.parse(text))).toBe(hash);
  },
);
