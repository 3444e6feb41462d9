import { toHex } from '#protocol/bytes';
import {
  admissionsFrom,
  adoptedRanges,
  waitingLongerThan,
  type AdmissionRow,
  batchesFrom,
  type CheckedBatch,
  ORPHAN_ROWS,
  unstoredRegistrations,
} from '#sql/fsck/admissions';
import type { FindingCode, Report } from '../findings.js';
import { FIRST_ID, isRequestOf, MAX_ROWS, pages, type RegistryContext } from './context.js';

const PAGE_SIZE = 5_000;
const BATCHES_AT_ONCE = 50;
const UNKNOWN_STATE =
  'admissions neither pending, rejected nor proved: a lost leaf may be their proof';

/**
 * Each admission must be exactly one of pending, rejected and proved.
 *
 * @param isLeafLost whether a leaf is damaged or lost: the proof of an admission without a state
 *   may be that leaf
 */
export async function checkAdmissions(
  ctx: RegistryContext,
  isLeafLost: boolean,
  waitMs: number,
  step: (rows: number) => void,
): Promise<void> {
  const { sql, findings } = ctx;
  const ids = ['proofId', PAGE_SIZE, FIRST_ID] as const;
  for await (const rows of pages(...ids, (...page) => admissionsFrom(sql, ...page))) {
    for (const row of rows) {
      const hasState = row.hasProof || row.hasRefusal || row.isPending;
      if (hasState || !isLeafLost) checkAdmission(row, findings.add);
      else findings.unchecked(UNKNOWN_STATE);
    }
    step(rows.length);
  }
  const { count, oldest } = await waitingLongerThan(sql, waitMs);
  if (count > 0) {
    const where = `svc.intake_pending and svc.chunk_pending, ${count} admissions`;
    const expected = `no pending admission older than ${waitMs} ms, the oldest is from ${oldest?.toISOString() ?? ''}`;
    findings.add('admissions_wait', where, expected);
  }
}

function checkAdmission(row: AdmissionRow, report: Report): void {
  const { proofId, isRefused, hasProof, hasRefusal, isPending, isErased, unproved } = row;
  const where = `svc.intake proof_id=${proofId}`;
  // For an admission with a proof, the check of its leaf reports these faults.
  if (!hasProof && isErased && row.hasPayload) {
    report('erasure_incomplete', where, 'no payload after its erasure');
  } else if (!hasProof && !isErased && row.lacksPayload) {
    report('proof_payload_missing', where, 'the request, or an erasure record');
  } else if (unproved !== null && !isRequestOf(unproved.request, toHex(unproved.requestHash))) {
    const hash = toHex(unproved.requestHash);
    // Workers will reject this accepted admission.
    report('request_altered', where, `the accepted request, with hash ${hash}`);
  }
  const states = [hasProof, hasRefusal, isPending].filter(Boolean).length;
  if (states === 0) {
    report('intake_lost', where, 'a proof, a rejection or a pending row');
  } else if (states > 1 || isRefused !== hasRefusal) {
    const found = `proved: ${hasProof}, rejected: ${hasRefusal}, pending: ${isPending}, rejected by its row: ${isRefused}`;
    report('intake_contradicts', where, `one of proved, rejected, pending; found ${found}`);
  }
}

/** Checks that batches have all their items and correct counts. */
export async function checkBatches({ sql, findings }: RegistryContext): Promise<void> {
  const all = pages('batchId', BATCHES_AT_ONCE, `batch_${FIRST_ID}`, (...page) =>
    batchesFrom(sql, ...page),
  );
  for await (const batches of all) {
    for (const batch of batches) {
      const fault = batchFault(batch);
      if (fault !== null)
        findings.add('batch_differs', `svc.batch batch_id=${batch.batchId}`, fault);
    }
  }
}

function batchFault(batch: CheckedBatch): string | null {
  const { counted, found } = batch;
  if (!batch.arePartsWhole) return 'rows of svc.batch_part that have each item exactly once';
  if (batch.foreignItems > 0)
    return `for ${batch.foreignItems} of its items, an admission of its tenant`;
  if (batch.itemsHash === null && batch.erased === 0 && found.invalid < batch.total) {
    return 'items_hash, because no item of the batch was erased';
  }
  // After an erasure of items, or when the bytes of items are missing, no hash can be compared.
  if (batch.itemsHash !== null && batch.foundHash !== null && batch.itemsHash !== batch.foundHash) {
    return `items_hash ${batch.foundHash} of its items, found ${batch.itemsHash}`;
  }
  if (counted === null) return 'its counts in svc.batch_progress';
  if (batch.isComplete !== (counted.pending === 0)) {
    return `pending items in svc.batch_progress until the batch completes, found ${counted.pending}`;
  }
  if (counted.pending !== batch.waiting) {
    return `pending rows for the ${counted.pending} items that svc.batch_progress counts, found ${batch.waiting}`;
  }
  for (const name of Object.keys(found) as (keyof typeof found)[]) {
    // The counts of an open batch may lag: repeated items are counted after the decision.
    const mayLag = !batch.isComplete && name !== 'invalid' && name !== 'replayed';
    const holds = mayLag ? counted[name] <= found[name] : counted[name] === found[name];
    if (!holds) return `${found[name]} ${name} in svc.batch_progress, found ${counted[name]}`;
  }
  return null;
}

const ORPHAN_ROW_FINDINGS: [
  query: keyof typeof ORPHAN_ROWS,
  code: FindingCode,
  expected: string,
][] = [
  ['batches', 'batch_differs', 'the batch that other rows refer to'],
  ['twice', 'intake_contradicts', 'no row, because svc.chunk_pending already has the admission'],
  ['packages', 'package_differs', 'the package of these members'],
  ['unchanged', 'grant_changes_differ', 'a change number for the package'],
  ['changes', 'grant_changes_differ', 'the token or package of the change'],
  ['erasures', 'erasure_incomplete', 'a known admission, and the leaf index of its proof'],
  ['unlogged', 'erasure_unlogged', 'the leaf both in an erasure entry and in svc.erasure'],
  ['unaccepted', 'intake_missing', 'the intake row of the admission'],
  ['duplicates', 'identity_twice', 'one admission per tenant, request type and request hash'],
  ['policySets', 'policy_set_altered', 'content with this hash'],
  ['activations', 'policy_activation_differs', 'the activations of this set that svc.audit has'],
  [
    'retired',
    'ended_log_differs',
    'a row with the size of the last checkpoint of this retired log',
  ],
  ['registrations', 'registration_altered', 'content with this hash'],
  ['fixtures', 'fixture_altered', 'content with this hash'],
];

/** Reports rows that contradict another row, or refer to a missing row. */
export async function checkOrphanRows({ keys, sql, findings }: RegistryContext): Promise<void> {
  for (const [query, code, expected] of ORPHAN_ROW_FINDINGS) {
    for (const { at } of await ORPHAN_ROWS[query](sql, MAX_ROWS)) findings.add(code, at, expected);
  }
  const adopted = await adoptedRanges(sql);
  const activated = keys.entries.flatMap(({ entry, leafIndex }) =>
    entry.type === 'key' &&
    entry.use === 'approver' &&
    !adopted.some(({ from, to }) => leafIndex >= from && leafIndex < to)
      ? [entry.registration_hash]
      : [],
  );
  for (const hash of await unstoredRegistrations(sql, [...new Set(activated)])) {
    const where = `svc.approver registration_hash=${hash}`;
    findings.add('registration_altered', where, 'the registration that the log activates');
  }
}
