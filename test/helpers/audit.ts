import { expect } from 'vitest';
import { toHex } from '#protocol/bytes';
import { openCheckpoint } from '#protocol/checkpoint';
import { parseEntry } from '#protocol/entries';
import { leafHash, rootOf } from '#protocol/merkle';
import { parseVkey } from '#protocol/note';
import type { ProofEntry } from '#protocol/schemas/log-entry';
import { decodeEntryBundle, entriesPath, TILE_WIDTH } from '#protocol/tiles';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { eventually, type RunningStack } from './stack.js';

async function bytesAt(url: string): Promise<Uint8Array> {
  const response = await fetch(url);
  if (response.status !== 200) throw new Error(`${url} answered ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** The published log as an outsider has it: every entry, under a checkpoint that covers it. */
export async function publishedLog(
  stack: RunningStack,
): Promise<{ size: number; root: string; proofs: Map<string, ProofEntry> }> {
  const keys = (await (await fetch(`${stack.publicUrl}/api/public/keys`)).json()) as {
    log: { vkey: string };
  };
  const vkey = parseVkey(keys.log.vkey);
  const note = await (await fetch(`${stack.publicUrl}/log/checkpoint`)).text();
  const checkpoint = openCheckpoint(note, vkey, vkey.name, nativeVerify, nativeSha256);
  const hashes: Uint8Array[] = [];
  const proofs = new Map<string, ProofEntry>();
  for (let index = 0; index * TILE_WIDTH < checkpoint.size; index += 1) {
    const width = Math.min(TILE_WIDTH, checkpoint.size - index * TILE_WIDTH);
    const bundle = await bytesAt(`${stack.publicUrl}/log/${entriesPath(index, width)}`);
    for (const bytes of decodeEntryBundle(bundle)) {
      hashes.push(leafHash(nativeSha256, bytes));
      const entry = parseEntry(bytes);
      if (entry.type !== 'proof') continue;
      expect(proofs.has(entry.proof_id), `${entry.proof_id} is in the log twice`).toBe(false);
      proofs.set(entry.proof_id, entry);
    }
  }
  expect(hashes).toHaveLength(checkpoint.size);
  expect(toHex(rootOf(nativeSha256, hashes))).toBe(toHex(checkpoint.root));
  return { size: checkpoint.size, root: toHex(checkpoint.root), proofs };
}

/**
 * After a fault: everything acknowledged is public and VALID, nothing is in the log twice, nothing
 * is in the log that was not accepted, nothing is left unsettled, and the published log verifies
 * from leaf 0.
 */
export async function expectNothingLost(
  stack: RunningStack,
  acknowledged: Iterable<string>,
): Promise<void> {
  const sql = stack.superuser();
  await eventually(
    async () => {
      const [row] = await sql<{ open: number }[]>`
        select (select count(*) from svc.intake_pending)::int
          + (select tree_size - coalesce((select max(last_index) + 1 from svc.verdict where frontier), 0)
             from svc.log_head)::int as open`;
      return row?.open === 0 ? true : null;
    },
    30_000,
    'the settlement of everything accepted',
  );
  for (const id of acknowledged) {
    const body = await eventually(
      async () => {
        const response = await stack.lookUp(id);
        return response.status === 200 ? ((await response.json()) as PublicBody) : null;
      },
      30_000,
      `the public verdict of ${id}`,
    );
    expect(body.verification).toMatchObject({
      verification_status: 'VALID',
      can_assert_validity: true,
    });
  }
  const [size] = await sql<{ tree_size: number }[]>`select tree_size from svc.log_head`;
  const log = await eventually(
    async () => {
      const seen = await publishedLog(stack);
      return seen.size >= (size?.tree_size ?? 0) ? seen : null;
    },
    30_000,
    'the publication of the whole log',
  );
  for (const id of acknowledged) expect(log.proofs.has(id)).toBe(true);
  const accepted = await sql<{ id: string; same: number }[]>`
    select replace(proof_id::text, '-', '') as id,
      (count(*) over (partition by tenant_no, lane, request_hash))::int as same
    from svc.intake where not refused`;
  expect(new Set(accepted.map((row) => row.id))).toEqual(new Set(log.proofs.keys()));
  expect(accepted.filter((row) => row.same > 1)).toEqual([]);
  const failed = await sql`select from svc.verdict where outcome = 'fail'`;
  expect(failed).toHaveLength(0);
}

interface PublicBody {
  verification: { verification_status: string; can_assert_validity: boolean };
}
