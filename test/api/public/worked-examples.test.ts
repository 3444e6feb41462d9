import { readFileSync } from 'node:fs';
import { Checkpoints } from '#api/public/log/checkpoints';
import type { SnapshotSource } from '#api/public/snapshot/source';
import { expect, it } from 'vitest';
import type { PublicContext } from '#api/public/operation';
import type { Resolved } from '#api/public/lookup/resolve';
import type { Snapshot } from '#api/public/snapshot/snapshot';
import { chainOf, historyOf, lookupResponse, trustPackageOf } from '#api/public/lookup/views';
import { concat, fromHex } from '#protocol/bytes';
import { parseEntry } from '#protocol/entries';
import { eventsOf } from '#protocol/history';
import { idsOf } from '#protocol/ids';
import { parseVkey } from '#protocol/note';
import {
  facadeSchema,
  historySchema,
  trustChainSchema,
  trustPackageSchema,
} from '#protocol/schemas/facade';
import type { AepKeyEntry, ProofEntry, StatusEntry } from '#protocol/schemas/log-entry';
import { aepKeys } from '#protocol/snapshot/keys';
import { recordBody } from '#protocol/snapshot/record';
import { encodeEntryBundle, entriesPath, tilePath } from '#protocol/tiles';
import { parseTime } from '#protocol/time';
import { memberOf, renderPackage } from '#publisher/render/package-record';
import { factsOfLeaf, renderRecord } from '#publisher/render/record';
import { sha256 } from '../../fixtures/leaves.js';
import {
  admitted,
  checkpoint,
  entries,
  keyEntries,
  leaves,
  logVkey,
  ORIGIN,
  revocation,
  root,
} from '../../fixtures/worked-log.js';

/** The examples of spec/answers.md. */
const examples = [
  ...readFileSync(new URL('../../../spec/answers.md', import.meta.url), 'utf8')
    .split('\n## ')
    .find((chapter) => chapter.startsWith('16.'))!
    .matchAll(/```json\n(.*?)\n```/gs),
].map(([, text]) => JSON.parse(text!) as Record<string, unknown>);

const ids = idsOf(admitted.proofId);
const entry = parseEntry(admitted.entry) as ProofEntry;
const status = parseEntry(revocation) as StatusEntry;
const PACKAGE = 'pkg_019aa2c1e07b7c208a3e5d6b7c8d9e0f';
const SNAPSHOT_VKEY = 'log.example/snapshot+e473a2fa+AfxRzY5iGKGjjaR+0AIw8FgIFu0TujMDrF3rkRVIkIAl';

/** The admission of the worked log: verified at tree size 3, its certificate revoked by leaf 3. */
function recordOfAdmission(): Uint8Array {
  const leaf = {
    kind: 'proof',
    leafIndex: admitted.leafIndex,
    proofId: admitted.proofId,
    aepHash: entry.aep_hash,
    proofRecordHash: entry.proof_record_hash,
    acceptedAt: parseTime(entry.time),
    effect: 'ADMIT',
    isOutcome: false,
    environment: 'sandbox',
    keyId: admitted.aep.key_id,
    validUntil: entry.valid_until,
  } as const;
  const passed = { outcome: 'pass', expired: [] } as const;
  const verifiedAt = parseTime('2026-11-20T17:29:00.250Z');
  const verdict = { ...passed, verdictId: 1, frontier: true, treeSize: 3, verifiedAt };
  const revoked = {
    leafIndex: entries.indexOf(revocation),
    kind: 'certificate',
    at: parseTime(status.time),
    reasonHash: status.reason_hash,
  } as const;
  return renderRecord(factsOfLeaf(leaf, ORIGIN, leaves.length), {
    verdict: { ...passed, verifiedAt: parseTime('2026-11-21T08:00:00.250Z') },
    revoked: ['certificate'],
    events: eventsOf(leaf, {
      verdicts: [{ ...verdict, failedChecks: [] }],
      revocations: [revoked],
    }),
  });
}

const record = recordOfAdmission();

function resolved(
  bytes: Uint8Array,
  uuid: string,
  { kind, matchedOn }: Pick<Resolved, 'kind' | 'matchedOn'>,
): Resolved {
  const id = fromHex(uuid);
  const found = { id, bytes, digest: new Uint8Array(16) };
  return { kind, matchedOn, record: found, body: recordBody(bytes, id, kind)! };
}

const certificate = resolved(record, admitted.proofId, {
  kind: 'certificate',
  matchedOn: 'certificate_id',
});
const facade = lookupResponse(certificate, ids.certificate_id);

it('worked examples > equal the responses for verdict, history and chain', () => {
  const answers = [facade, historyOf(facade, certificate), chainOf(facade, certificate)];
  for (const [i, schema] of [facadeSchema, historySchema, trustChainSchema].entries()) {
    expect(schema.parse(answers[i])).toEqual(answers[i]);
    expect(examples).toContainEqual(answers[i]);
  }
});

it('worked examples > equal the response for a package', () => {
  const member = memberOf(record, admitted.proofId, 0);
  const bytes = renderPackage(ORIGIN, PACKAGE, [member]);
  const found = resolved(bytes, PACKAGE.slice(4), { kind: 'trust', matchedOn: 'package_id' });
  const answer = lookupResponse(found, PACKAGE);
  expect(facadeSchema.parse(answer)).toEqual(answer);
  expect(examples).toContainEqual(answer);
});

it('worked examples > equal the response for evidence', async () => {
  const files = new Map([
    [tilePath(0, 0, leaves.length), concat(...leaves)],
    [entriesPath(0, leaves.length), encodeEntryBundle(entries)],
  ]);
  const logFile = (path: string) => Promise.resolve(files.get(path) ?? null);
  const source = { logFile } as SnapshotSource;
  const checkpoints = new Checkpoints(source, [parseVkey(logVkey, sha256)], { now: () => 0 });
  const ctx = { source, checkpoints } as PublicContext;
  const keys = keyEntries.map((one) => ({ ...one, entry: one.entry as AepKeyEntry }));
  const signedBy = { log: parseVkey(logVkey, sha256), snapshot: parseVkey(SNAPSHOT_VKEY, sha256) };
  const snapshot = {
    opened: { signedBy, manifest: { checkpoint }, checkpoint: { size: leaves.length, root } },
    keys: { aep: aepKeys(sha256, keys) },
  } as unknown as Snapshot;
  const trust = resolved(record, admitted.proofId, { kind: 'trust', matchedOn: 'trust_id' });
  const all = await trustPackageOf(ctx, snapshot, lookupResponse(trust, ids.trust_id), trust);
  expect(trustPackageSchema.parse(all)).toEqual(all);
  expect(examples).toContainEqual({ evidence: all.evidence });
});
