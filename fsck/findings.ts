const RESTORE =
  'restore the row from a backup of the database, in a transaction with session_replication_role = replica';
const REWRITE =
  'delete map/ and lookup/ in the snapshot directory and restart the publisher, which rewrites both from the log';
/** After a rollback of the database, a publisher without lookup/ would publish tokens whose revocation is lost. */
const REVOKE_AGAIN =
  'if the database was restored or failed over, first revoke the affected tokens again (docs/runbooks.md#a-rolled-back-database); then';
const REWRITE_SHARES = `${REVOKE_AGAIN} ${REWRITE}`;
const REFETCH = `copy the file again from the origin or a mirror. If every copy is lost: ${REVOKE_AGAIN} delete the file and lookup/ in the snapshot directory and restart the publisher, which writes every file of the log again`;
const WHO = 'find out who else can write to the log';

/** Every finding with its remedy. The codes are a closed, public set. */
const ADVICE = {
  // The log in the database
  leaf_missing: RESTORE,
  leaf_altered: RESTORE,
  log_head_missing:
    'insert the row that this finding expects, unless another finding shows that the log lost leaves: appends fail until then',
  leaf_beyond_head: `delete the row; ${WHO}`,
  leaf_misfiled: RESTORE,
  tile_missing: 'write the tile that this finding expects: appends fail until then',
  tile_altered: 'write the tile that this finding expects: appends fail until then',
  tile_beyond_head: `delete the tile; ${WHO}`,
  checkpoint_unverifiable:
    'if the log key was changed, pin the earlier key too; otherwise find out who signed the checkpoint',
  checkpoint_altered: RESTORE,
  checkpoint_root_differs:
    'the log was rewritten after the checkpoint was signed: restore a database that has the signed leaves',
  checkpoint_beyond_log:
    'the database was rolled back: restore a database that has every signed leaf',
  checkpoint_missing:
    'insert the published note with its size and root: exports under this checkpoint are rejected until then',
  ended_log_differs:
    'restore the rows of svc.ended_log and svc.ended_checkpoint from a backup: until then a publisher could sign for the retired log',
  // Keys and revocations
  key_history_broken: 'restore the key entries: no signature under this key can be verified',
  key_chain_wrong: 'no program appends such a key entry: find out who appended it',
  key_not_active: 'do not trust the worker that signed the proof: retire the key of that worker',
  revocation_unknown_proof: `no program appends such an entry: ${WHO}`,
  revocation_reason_missing: 'restore the row of svc.revocation_reason from a backup',
  revocation_reason_altered: 'restore the row of svc.revocation_reason from a backup',
  revocation_lost: 'the log lacks a requested revocation: restore the entry, or revoke again',
  // Proofs
  proof_payload_missing: RESTORE,
  erasure_incomplete:
    'erase the proof again with admin erase; if the erasure record is not legitimate, find out who wrote it',
  erasure_unlogged:
    'erasure entries and svc.erasure differ: restore the missing record or entry, or find out who wrote the row or entry that has no counterpart',
  aep_altered: RESTORE,
  aep_invalid: 'do not trust the worker that signed the proof: retire the key of that worker',
  signature_invalid: RESTORE,
  proof_record_differs: RESTORE,
  request_altered: RESTORE,
  approval_invalid:
    'restore the rows of the proof and of its pending proof from a backup; if these rows are right, find out which worker signed the proof',
  columns_differ: RESTORE,
  // Admissions
  intake_missing: RESTORE,
  intake_differs: RESTORE,
  intake_lost:
    'insert the admission into svc.intake_pending again, with batch_id and batch_items if a batch contains it: a worker then processes it',
  intake_contradicts: 'keep the row that agrees with the log; restore the other row from a backup',
  identity_twice:
    'restore the unique index intake_identity, and find out which admission was first',
  admissions_wait: 'start workers, or see in their log why they do not process admissions',
  // Decision inputs
  budget_differs:
    'if a proof differs, find out which worker signed it; if a counter differs, do not restore it, because a backup may have a lower value, with which agents overspend: stop the workers, run fsck again, and set or insert the row with the expected value, or a higher value if proofs of the tenant were erased, in a transaction with session_replication_role = replica',
  policy_set_altered: RESTORE,
  policy_activation_differs:
    'restore the rows as in svc.audit: until then another set may decide; if no row differs, retire the key of the worker that signed under this set',
  fixture_altered: RESTORE,
  registration_altered: RESTORE,
  // Verdicts
  verdict_gap: 'restore the rows of svc.verdict from a backup',
  verdict_root_differs: 'restore the rows of svc.verdict from a backup',
  verdict_keys_differ: 'restore the rows of svc.verdict from a backup',
  verdict_beyond_log:
    'the database was rolled back: restore a database that has every verified leaf',
  verdict_passes:
    'start the verifier and wait for a full verification pass, which withdraws the verdict',
  verdict_expired_early: 'restore the rows of svc.verdict from a backup',
  verdicts_behind: 'start the verifier, or wait until it has verified these leaves',
  verdict_outdated:
    'wait for a full verification pass: the verifier then reports the leaf as valid again',
  expiry_missing: 'restore the rows of svc.expiry from a backup',
  expiry_differs: 'restore the rows of svc.expiry from a backup',
  status_exception_missing:
    'insert the row: until then a list of proofs by status omits this proof',
  expiry_overdue:
    'start the verifier, whose next scan records this expiry, and find out why the last scan missed it',
  verdict_entry_wrong:
    'replace the verifier key, and find out who can use the old key and the role svc_verifier',
  // Packages, share tokens, batches
  package_differs: RESTORE,
  share_target_missing: RESTORE,
  share_end_differs: RESTORE,
  grant_changes_differ: 'restore the rows of svc.grant_change from a backup',
  batch_differs: RESTORE,
  // The public snapshot
  snapshot_missing: 'start the publisher',
  snapshot_unverifiable:
    'if the log key was changed, pin the earlier key too; otherwise start the publisher, which reports the cause',
  snapshot_went_back:
    'an older snapshot was restored: start the publisher, and find out who can write the snapshot',
  snapshot_over: 'start the publisher and the verifier: until then nothing is reported as valid',
  snapshot_behind: 'start the publisher, or wait for its next snapshot',
  map_root_differs:
    'the log commits to false answers: stop the public API servers, and find out who has the keys of the publisher',
  map_root_unchecked: 'no publisher appends such a snapshot entry: find out who appended it',
  entry_ignored: 'no program appends an entry without effect: find out who appended it',
  map_page_missing: REWRITE,
  map_page_altered: REWRITE,
  record_differs: 'the log entry contradicts the signed document: retire the key of the worker',
  record_asserts:
    'the log has a passing verdict on a proof that fsck finds invalid: start the verifier, which withdraws the verdict',
  public_checkpoint_missing: 'start the publisher',
  public_checkpoint_unverifiable:
    'delete the file and restart the publisher, which rewrites it, or copy it again from the origin',
  public_root_differs:
    'the public log differs from the signed log: start the publisher, which reports the cause',
  log_forked:
    'database and public log differ: keep both, and restore a database that has the published leaves',
  public_tile_missing: REFETCH,
  public_tile_altered: REFETCH,
  bundle_missing: REFETCH,
  bundle_altered: REFETCH,
  shares_root_differs: REWRITE,
  share_record_differs: REWRITE,
  share_record_missing: REWRITE_SHARES,
  share_record_unknown: REWRITE_SHARES,
} as const satisfies Record<string, string>;

export type FindingCode = keyof typeof ADVICE;

/** The findings that are states of a running or stopped system. */
const NOTICES: readonly FindingCode[] = [
  'admissions_wait',
  'verdicts_behind',
  'verdict_outdated',
  'snapshot_over',
  'snapshot_behind',
];

/** Whether a finding is corruption: data differs from what was signed, hashed or recorded. */
export const isGrave = (code: FindingCode): boolean => !NOTICES.includes(code);

export interface Finding {
  code: FindingCode;
  /** Corruption, as opposed to a state of a running system. */
  grave: boolean;
  /** Where the fault is: table and row, or file and offset. */
  where: string;
  /** The expected value, and the found value if it is known. */
  expected: string;
  advice: string;
}

export type Report = (code: FindingCode, where: string, expected: string) => void;

/**
 * Maximum number of reported findings per code. Further findings are only counted, so that a damaged
 * disk cannot fill the memory.
 */
const MAX_REPORTED_PER_CODE = 100;

/** The findings and the unchecked parts so far, from which a resumed run continues. */
export interface FindingsState {
  /** The number of findings per code, including findings that are only counted. */
  counts: Partial<Record<FindingCode, number>>;
  reported: Finding[];
  /** Parts that could not be read. */
  unchecked: string[];
  /** Parts that the options exclude. */
  skipped: string[];
}

export class Findings {
  readonly state: FindingsState;
  private readonly seen: Set<string>;

  constructor(state?: FindingsState) {
    this.state = state ?? { counts: {}, reported: [], unchecked: [], skipped: [] };
    this.seen = new Set(this.state.reported.map(({ code, where }) => `${code} ${where}`));
  }

  readonly add: Report = (code, where, expected) => {
    // A resumed run repeats some checks.
    if (this.seen.has(`${code} ${where}`)) return;
    const { counts, reported } = this.state;
    const count = (counts[code] ?? 0) + 1;
    counts[code] = count;
    if (count > MAX_REPORTED_PER_CODE) return;
    this.seen.add(`${code} ${where}`);
    reported.push({ code, where, expected, grave: isGrave(code), advice: ADVICE[code] });
  };

  readonly unchecked = (part: string): void => {
    if (!this.state.unchecked.includes(part)) this.state.unchecked.push(part);
  };

  readonly skip = (part: string): void => {
    if (!this.state.skipped.includes(part)) this.state.skipped.push(part);
  };

  get isCorrupt(): boolean {
    return (Object.keys(this.state.counts) as FindingCode[]).some(isGrave);
  }
}
