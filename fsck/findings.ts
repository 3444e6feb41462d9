/**
 * Every finding with its remedy. The codes are a closed, public set. A `grave` finding is
 * corruption: data differs from what was signed, hashed or recorded. Other findings are states of a
 * running or stopped system.
 */
const row = (advice: string) => ({ grave: true, advice });
const notice = (advice: string) => ({ grave: false, advice });

const RESTORE =
  'restore the row from a backup of the database, in a transaction with session_replication_role = replica';
const REWRITE =
  'delete map/ and lookup/ in the snapshot directory and restart the publisher, which rewrites both from the log';
const REFETCH =
  'delete the file and restart the publisher, which rewrites it, or copy it again from the origin';
const WHO = 'find out who else can write to the log';

export const FINDINGS = {
  // The log in the database
  leaf_missing: row(RESTORE),
  leaf_altered: row(RESTORE),
  log_head_missing: row(
    'insert the row that this finding expects, unless another finding shows that the log lost leaves: appends fail until then',
  ),
  leaf_beyond_head: row(`delete the row; ${WHO}`),
  leaf_misfiled: row(RESTORE),
  tile_missing: row('write the tile that this finding expects: appends fail until then'),
  tile_altered: row('write the tile that this finding expects: appends fail until then'),
  tile_beyond_head: row(`delete the tile; ${WHO}`),
  checkpoint_unverifiable: row(
    'if the log key was changed, pin the earlier key too; otherwise find out who signed the checkpoint',
  ),
  checkpoint_altered: row(RESTORE),
  checkpoint_root_differs: row(
    'the log was rewritten after the checkpoint was signed: restore a database that has the signed leaves',
  ),
  checkpoint_beyond_log: row(
    'the database was rolled back: restore a database that has every signed leaf',
  ),
  checkpoint_missing: row(
    'insert the published note with its size and root: exports under this checkpoint are rejected until then',
  ),
  ended_log_differs: row(
    'restore the rows of svc.ended_log and svc.ended_checkpoint from a backup: until then a publisher could sign for the retired log',
  ),
  // Keys and revocations
  key_history_broken: row('restore the key entries: no signature under this key can be verified'),
  key_chain_wrong: row('no program appends such a key entry: find out who appended it'),
  key_not_active: row(
    'do not trust the worker that signed the proof: retire the key of that worker',
  ),
  revocation_unknown_proof: row(`no program appends such an entry: ${WHO}`),
  revocation_reason_missing: row('restore the row of svc.revocation_reason from a backup'),
  revocation_reason_altered: row('restore the row of svc.revocation_reason from a backup'),
  revocation_lost: row('the log lacks a requested revocation: restore the entry, or revoke again'),
  // Proofs
  proof_payload_missing: row(RESTORE),
  erasure_incomplete: row(
    'erase the proof again with admin erase; if the erasure record is not legitimate, find out who wrote it',
  ),
  erasure_unlogged: row(
    'erasure entries and svc.erasure differ: restore the missing record or entry, or find out who wrote the row or entry that has no counterpart',
  ),
  aep_altered: row(RESTORE),
  aep_invalid: row('do not trust the worker that signed the proof: retire the key of that worker'),
  signature_invalid: row(RESTORE),
  proof_record_differs: row(RESTORE),
  request_altered: row(RESTORE),
  approval_invalid: row(
    'restore the rows of the proof and of its pending proof from a backup; if these rows are right, find out which worker signed the proof',
  ),
  columns_differ: row(RESTORE),
  // Admissions
  intake_missing: row(RESTORE),
  intake_differs: row(RESTORE),
  intake_lost: row(
    'insert the admission into svc.intake_pending again, with batch_id and batch_items if a batch contains it: a worker then processes it',
  ),
  intake_contradicts: row(
    'keep the row that agrees with the log, and restore the other from a backup',
  ),
  identity_twice: row(
    'restore the unique index intake_identity, and find out which admission was first',
  ),
  admissions_wait: notice('start workers, or see in their log why they do not process admissions'),
  // Decision inputs
  budget_differs: row(
    'if a proof differs, find out which worker signed it; if a counter differs, do not restore it, because a backup may have a lower value, with which agents overspend: stop the workers, run fsck again, and set or insert the row with the expected value, or a higher value if proofs of the tenant were erased, in a transaction with session_replication_role = replica',
  ),
  policy_set_altered: row(RESTORE),
  policy_activation_differs: row(
    'restore the rows as in svc.audit: until then another set may decide; if no row differs, retire the key of the worker that signed under this set',
  ),
  fixture_altered: row(RESTORE),
  registration_altered: row(RESTORE),
  // Verdicts
  verdict_gap: row('restore the rows of svc.verdict from a backup'),
  verdict_root_differs: row('restore the rows of svc.verdict from a backup'),
  verdict_keys_differ: row('restore the rows of svc.verdict from a backup'),
  verdict_beyond_log: row(
    'the database was rolled back: restore a database that has every verified leaf',
  ),
  verdict_passes: row(
    'start the verifier and wait for a full verification pass, which withdraws the verdict',
  ),
  verdict_expired_early: row('restore the rows of svc.verdict from a backup'),
  verdicts_behind: notice('start the verifier, or wait until it has verified these leaves'),
  verdict_outdated: notice(
    'wait for a full verification pass: the verifier then reports the leaf as valid again',
  ),
  expiry_missing: row('restore the rows of svc.expiry from a backup'),
  expiry_differs: row('restore the rows of svc.expiry from a backup'),
  status_exception_missing: row(
    'insert the row: until then a list of proofs by status omits this proof',
  ),
  expiry_overdue: row(
    'start the verifier, whose next scan records this expiry, and find out why the last scan missed it',
  ),
  verdict_entry_wrong: row(
    'replace the verifier key, and find out who can use the old key and the role svc_verifier',
  ),
  // Packages, share tokens, batches
  package_differs: row(RESTORE),
  share_target_missing: row(RESTORE),
  share_end_differs: row(RESTORE),
  grant_changes_differ: row('restore the rows of svc.grant_change from a backup'),
  batch_differs: row(RESTORE),
  // The public snapshot
  snapshot_missing: row('start the publisher'),
  snapshot_unverifiable: row(
    'if the log key was changed, pin the earlier key too; otherwise start the publisher, which reports the cause',
  ),
  snapshot_went_back: row(
    'an older snapshot was restored: start the publisher, and find out who can write the snapshot',
  ),
  snapshot_over: notice(
    'start the publisher and the verifier: until then nothing is reported as valid',
  ),
  snapshot_behind: notice('start the publisher, or wait for its next snapshot'),
  map_root_differs: row(
    'the log commits to false answers: stop the public API servers, and find out who has the keys of the publisher',
  ),
  map_root_unchecked: row('no publisher appends such a snapshot entry: find out who appended it'),
  entry_ignored: row('no program appends an entry without effect: find out who appended it'),
  map_page_missing: row(REWRITE),
  map_page_altered: row(REWRITE),
  record_differs: row(
    'the log entry contradicts the signed document: retire the key of the worker',
  ),
  record_asserts: row(
    'the log has a passing verdict on a proof that fsck finds invalid: start the verifier, which withdraws the verdict',
  ),
  public_checkpoint_missing: row('start the publisher'),
  public_checkpoint_unverifiable: row(REFETCH),
  public_root_differs: row(
    'the public log differs from the signed log: start the publisher, which reports the cause',
  ),
  log_forked: row(
    'database and public log differ: keep both, and restore a database that has the published leaves',
  ),
  public_tile_missing: row(REFETCH),
  public_tile_altered: row(REFETCH),
  bundle_missing: row(REFETCH),
  bundle_altered: row(REFETCH),
  shares_root_differs: row(REWRITE),
  share_record_differs: row(REWRITE),
  share_record_missing: row(REWRITE),
  share_record_unknown: row(REWRITE),
} as const satisfies Record<string, { grave: boolean; advice: string }>;

export type FindingCode = keyof typeof FINDINGS;

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
    reported.push({ code, where, expected, ...FINDINGS[code] });
  };

  readonly unchecked = (part: string): void => {
    if (!this.state.unchecked.includes(part)) this.state.unchecked.push(part);
  };

  readonly skip = (part: string): void => {
    if (!this.state.skipped.includes(part)) this.state.skipped.push(part);
  };

  get isCorrupt(): boolean {
    return (Object.keys(this.state.counts) as FindingCode[]).some((code) => FINDINGS[code].grave);
  }
}
