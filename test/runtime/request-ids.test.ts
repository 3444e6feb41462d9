import { describe, expect, it } from 'vitest';
import { packRequestIds, unpackRequestIds } from '#runtime/http/request-ids';

const ids = ['a'.repeat(32), 'b'.repeat(32)];
const known = (packed: unknown) => ids.map((id) => unpackRequestIds(packed, ids).of(id));

describe('request ids of a job', () => {
  it("keep the order of the job's proof ids", () => {
    expect(known(packRequestIds(['trace-1', 'x'.repeat(128)]))).toEqual([
      'trace-1',
      'x'.repeat(128),
    ]);
    expect(unpackRequestIds('trace-1 trace-2', ids).of('c'.repeat(32))).toBeUndefined();
  });

  it.each([
    ['nothing', undefined],
    ['a list', ['trace-1', 'trace-2']],
    ['an object', { length: 2, split: 'x' }],
    ['too few', 'trace-1'],
    ['one that is too long', `trace-1 ${'x'.repeat(129)}`],
    ['a line break', 'trace-1 trace\n2'],
    ['a colour', 'trace-1 \u001b[31mred'],
    ['megabytes', 'x'.repeat(4_000_000)],
  ])('are omitted when there is %s', (_what, packed) => {
    expect(known(packed)).toEqual([undefined, undefined]);
  });
});
