/**
 * Everything that a monitor reports. `alarm`: the log or its publisher breaks a promise, or a watched file
 * cannot be used. `lasting`: an alarm that stays true, because the log contains its cause, two signatures
 * prove it, or the monitor's own polls disprove the time of an entry. `notice`: a change that someone who knows
 * the service should recognise.
 */
export const FINDINGS = {
  log_forked: 'lasting',
  map_root_differs: 'lasting',
  map_root_unchecked: 'lasting',
  entry_ignored: 'lasting',
  entry_ahead: 'lasting',
  merge_delay_exceeded: 'lasting',
  receipt_contradicted: 'lasting',
  proof_omitted: 'alarm',
  receipt_unverifiable: 'alarm',
  checkpoint_missing: 'alarm',
  checkpoint_unverifiable: 'alarm',
  checkpoint_went_back: 'alarm',
  log_damaged: 'alarm',
  snapshot_unverifiable: 'alarm',
  snapshot_went_back: 'alarm',
  snapshot_expired: 'alarm',
  watched_file_unusable: 'alarm',
  checkpoint_of_other_log: 'notice',
  unreachable: 'notice',
  state_missing: 'notice',
  key_entry: 'notice',
  status_changed: 'notice',
} as const satisfies Record<string, 'alarm' | 'lasting' | 'notice'>;

export type FindingCode = keyof typeof FINDINGS;

export interface Finding {
  code: FindingCode;
  /** The source, entry, proof or watched file that the finding is about. */
  where: string;
  detail: string;
  /** Signed notes that prove the finding to others. */
  notes?: string[];
}

/** Receives a finding; for `entry_ignored`, also the index of the ignored entry. */
export type Report = (finding: Finding, ignored?: number) => void;
