import { expect, it } from 'vitest';
import { fromUtf8 } from '#protocol/bytes';
import { readLogEntryHttp, type PublicOptions } from '#sdk/index';
import { sdkError } from '../fixtures/sdk-error.js';
import { admitted, entries, logVkey, ORIGIN, tlogProofOf } from '../fixtures/worked-log.js';

const index = admitted.leafIndex;
const pins = { vkey: logVkey, origin: ORIGIN };

/** Options for a registry that sends this entry and this inclusion proof for every index. */
const sending = (entry: number, proof: number): PublicOptions => ({
  publicUrl: 'http://registry.invalid',
  pins,
  fetch: (input) => {
    const isEntry = new URL(input).pathname.startsWith('/log/entry/');
    const body = isEntry ? fromUtf8(entries[entry]!) : tlogProofOf(proof);
    const type = isEntry ? 'application/json' : 'text/plain';
    return Promise.resolve(new Response(body, { headers: { 'content-type': type } }));
  },
});

it('readLogEntryHttp returns entries of the pinned log, and rejects all others', async () => {
  const read = (options: PublicOptions) => readLogEntryHttp(options, { leaf_index: index });
  expect(await read(sending(index, index))).toMatchObject({
    entry: { type: 'proof' },
    bytes: entries[index]!,
    verified: true,
  });
  const other = index - 1;
  await sdkError(read(sending(other, index)), 'evidence_rejected');
  await sdkError(read(sending(other, other)), 'evidence_rejected');
  const stranger = { ...pins, origin: 'log.example/other' };
  const mistaken = read({ ...sending(index, index), pins: stranger });
  await sdkError(mistaken, 'evidence_rejected');
  const { fetch, publicUrl } = sending(other, other);
  expect(await read({ fetch: fetch!, publicUrl })).toMatchObject({ verified: false });
});
