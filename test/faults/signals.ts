/** The signs of a fault that operators must see, and the signs that they may see. */
export interface Signals {
  /** Programs whose `/readyz` must fail. */
  unready?: RegExp;
  mayBeUnready?: RegExp;
  /** A problem that `admin status` must report, with N for each number. */
  status?: RegExp;
  mayStatus?: RegExp;
  /** The alert whose expression must become true, or the reason why there is no such alert. */
  alert: string | { none: string };
  /** Further alerts whose expression may be true for as long as the `for` of the alert. */
  mayAlert?: RegExp;
  /** A line that a program must log, or the reason why there is no such line. */
  log: RegExp | { none: string };
  /** The system does not recover from the fault: the signs last. */
  lasts?: true;
}

const DATABASE_USERS = /^(engine|worker|verifier|publisher)/;
/** Problems that `admin status` may report while programs reconnect or restart: heartbeats are up to two seconds old. */
const RECOVERING =
  /^(the database (cannot be reached|answers too slowly)|no \w+ (is|has)|(queue|database|jobs) down|(ticks|log|upkeep|scrub|verdict) (failing|stalled))/;
/** `RECOVERING`, and the problems that `admin status` reports after some seconds without a successful publish cycle. */
const NOT_PUBLISHED = new RegExp(
  `${RECOVERING.source}|^no publish cycle has succeeded|^no signed checkpoint`,
);
const RETRIED = 'the next attempt succeeds';

/** The signs of a program that is killed, and that its supervisor restarts at once. */
const killed = (process: string, more: Partial<Signals> = {}): Signals => ({
  unready: new RegExp(`^${process}$`),
  mayStatus: RECOVERING,
  alert: { none: 'the program restarts within two scrapes' },
  log: new RegExp(`^${process.replace(/-.*/, '')}: started`),
  ...more,
});

const stopped = (process: string, more: Partial<Signals> = {}): Signals => ({
  unready: new RegExp(`^${process}$`),
  mayStatus: RECOVERING,
  alert: 'SvcTargetDown',
  log: { none: 'a stopped process writes nothing' },
  ...more,
});

const cutOff = (process: string, more: Partial<Signals> = {}): Signals => ({
  unready: new RegExp(`^${process}$`),
  mayStatus: RECOVERING,
  alert: 'SvcDatabaseDown',
  log: new RegExp(`^${process.replace(/-.*/, '')}: not ready`),
  ...more,
});

/** The signs of a clock that is off by an hour; the scenario restarts the program to shift its clock. */
const offClock = (process: string, more: Partial<Signals> = {}): Signals => ({
  unready: new RegExp(`^${process}$`),
  mayStatus: RECOVERING,
  alert: 'SvcClockSkew',
  log: new RegExp(`^${process.replace(/-.*/, '')}: started`),
  ...more,
});

const BUCKET_DOWN: Signals = {
  unready: /^publisher$/,
  status: /^store down/,
  mayStatus: /^ticks (failing|stalled)/,
  alert: 'SvcSnapshotStoreDown',
  log: /^publisher: the cycle failed \(StoreError\)/,
};

const databaseDown = {
  unready: /^engine/,
  mayBeUnready: DATABASE_USERS,
  status: /^the database cannot be reached$/,
  mayStatus: RECOVERING,
  alert: 'SvcDatabaseDown',
  log: /^(engine|worker|verifier|publisher): (not ready|database_unavailable|a pass failed)/,
} satisfies Signals;

const table = {
  'Redis down': {
    status: /^queue down, as reported by /,
    alert: 'SvcRedisDown',
    log: /^worker: Redis is unreachable/,
  },
  'Redis slow': {
    mayStatus: /^queue down/,
    alert: 'SvcRedisDown',
    log: /^worker: Redis is unreachable/,
  },
  'Redis cut off from an engine': {
    status: /^queue down, as reported by engine/,
    alert: 'SvcRedisDown',
    log: /^engine: queue unavailable/,
  },
  'Redis out of memory': {
    mayStatus: /^queue down/,
    alert: { none: 'Redis answers' },
    log: /^engine: queue unavailable/,
  },
  'queue emptied': {
    alert: 'SvcAdmissionsRequeued',
    log: /^worker: (batch dispatcher: expired chunks|stale revocations) requeued/,
  },
  'queue abused': {
    alert: { none: 'workers ignore such jobs' },
    log: { none: 'workers ignore such jobs' },
  },
  'database down': databaseDown,
  'database unusable': { ...databaseDown, status: RECOVERING },
  'database not responding': {
    ...databaseDown,
    status: RECOVERING,
    log: /^\w+: not ready/,
  },
  'connections ended': {
    mayBeUnready: DATABASE_USERS,
    mayStatus: RECOVERING,
    alert: 'SvcErrors',
    log: /^(engine: database_unavailable|verifier: a pass failed|publisher: )/,
  },
  'database slow': {
    mayStatus: RECOVERING,
    alert: { none: 'receipts still take less than two seconds' },
    log: { none: 'nothing fails' },
  },
  'append lock held': {
    mayBeUnready: /^verifier$|^publisher$/,
    mayStatus: RECOVERING,
    alert: 'SvcReceiptLatency',
    log: /^worker: (admissions committed late|admissions cannot be committed)/,
  },
  'database disk full': {
    // Programs may stay ready on a full disk: queries and writes into existing pages succeed.
    mayBeUnready: DATABASE_USERS,
    mayStatus: RECOVERING,
    alert: 'SvcErrors',
    log: /No space left on device/,
  },
  'database lost commits': {
    unready: /^publisher$/,
    mayBeUnready: DATABASE_USERS,
    status: /^no publisher is connected|^the publisher refuses to publish/,
    mayStatus: RECOVERING,
    alert: 'SvcTargetDown',
    mayAlert: /./,
    log: /^publisher: stopped/,
    lasts: true,
  },
  'engine-1 cut off': cutOff('engine-1'),
  'worker-1 cut off': cutOff('worker-1'),
  'verifier cut off': cutOff('verifier', { status: /^no verifier is connected/ }),
  'publisher cut off': cutOff('publisher', {
    status: /^no publisher is connected/,
    alert: 'SvcNoLeader',
  }),
  'snapshot disk full': {
    unready: /^publisher$/,
    status: /^ticks failing/,
    mayStatus: /^the disk of the snapshots is nearly full/,
    alert: { none: 'the alert fires only after more failed cycles' },
    log: /^publisher: the cycle failed.*snapshot\/public.*ENOSPC/,
  },
  'snapshot disk read-only': {
    unready: /^publisher$/,
    status: /^ticks failing/,
    alert: { none: 'the alert fires only after more failed cycles' },
    log: /^publisher: the cycle failed.*EROFS.*snapshot\/public/,
  },
  'bucket down': BUCKET_DOWN,
  'bucket not responding': {
    ...BUCKET_DOWN,
    // The cycle stalls until its requests time out: after 15 s, or 30 s when the publisher
    // then checks whether an unanswered write happened.
    mayStatus:
      /^ticks (failing|stalled)|^no publish cycle has succeeded|^no signed checkpoint|^the public API at \S+ serves a snapshot/,
  },
  'bucket slow': {
    alert: { none: 'a publish cycle takes longer, and nothing fails' },
    log: { none: 'a publish cycle takes longer, and nothing fails' },
  },
  // The publisher fails only if it has verdicts left to publish, because the verifier signs no new verdicts.
  'HSM down': {
    unready: /^verifier$/,
    mayBeUnready: /^publisher$/,
    status: /^verdict failing/,
    mayStatus: RECOVERING,
    alert: { none: 'the alert fires only after more failed passes' },
    log: /^verifier: a pass failed.*pkcs11-tool/,
  },
  'engine-1 killed': killed('engine-1'),
  'engine-1 down': killed('engine-1', { alert: 'SvcTargetDown' }),
  'verifier down': killed('verifier', {
    status: /^no verifier is connected/,
    alert: 'SvcTargetDown',
  }),
  'publisher down': killed('publisher', {
    status: /^no publisher is connected/,
    alert: 'SvcTargetDown',
    log: /^publisher: this process holds the lease now/,
  }),
  'publisher killed once': killed('publisher', {
    log: /^publisher: this process holds the lease now/,
  }),
  'publisher killed repeatedly': killed('publisher', {
    mayStatus: NOT_PUBLISHED,
    mayAlert: /^Svc(NoLeader|SnapshotOld|CheckpointLag)$/,
    log: /^publisher: this process holds the lease now/,
  }),
  'facade down': killed('facade', {
    status: /^the public API is down/,
    alert: 'SvcTargetDown',
  }),
  'worker killed': killed('worker-\\d'),
  'workers down': killed('worker-\\d', {
    status: /^no worker is connected/,
    alert: 'SvcTargetDown',
  }),
  'engine-1 stopped': stopped('engine-1'),
  'worker-1 stopped': stopped('worker-1', {
    mayBeUnready: /^(verifier|publisher)$/,
  }),
  'verifier stopped': stopped('verifier'),
  'publisher stopped': stopped('publisher'),
  'engine-1 clock': offClock('engine-1'),
  'worker-1 clock': offClock('worker-1'),
  'verifier clock': offClock('verifier'),
  'publisher clock': offClock('publisher', {
    mayBeUnready: /^facade$/,
    mayStatus: /./,
  }),
  'facade clock': offClock('facade', {
    status: /^the public API/,
  }),
  'engine write lost': {
    alert: { none: RETRIED },
    log: /^engine: (database_unavailable|request 503)/,
  },
  'worker write lost': {
    alert: { none: RETRIED },
    log: /^worker: (admissions|revocations) cannot be committed|^worker: batch dispatcher: \w+ failed/,
  },
  'verifier write lost': {
    mayBeUnready: /^verifier$/,
    mayStatus: RECOVERING,
    alert: { none: RETRIED },
    log: /^verifier: a pass failed/,
  },
  'publisher write lost': {
    unready: /^publisher$/,
    mayStatus: NOT_PUBLISHED,
    alert: { none: RETRIED },
    log: /^publisher: the cycle failed/,
  },
  'operator write lost': {
    alert: { none: 'the command reports the error to its operator' },
    log: { none: 'the command reports the error to its operator' },
  },
} satisfies Record<string, Signals>;

export type Kind = keyof typeof table;

export const SIGNALS: Record<Kind, Signals> = table;
