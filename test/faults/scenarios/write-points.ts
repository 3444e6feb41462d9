import { setTimeout as sleep } from 'node:timers/promises';
import { approve, registerApprover } from '../approvals.js';
import type { ActKind } from '../next-acts.js';
import type { Scene } from '../fault.js';
import type { TcpProxy } from '../../fixtures/tcp-proxy.js';
import type { World } from '../world.js';

/** A transaction of a program or an admin command that writes to the registry. */
export interface WritePoint {
  what: string;
  of: (keyof World['links'])[];
  /** Files below `sql/` that contain the statements of the transaction. */
  files: string[];
  /** Texts in lower case that the transaction must contain. */
  has: string[];
  /** Further writes of the transaction, listed so that a scenario covers each write in the code. */
  also?: string[];
  /** Texts of reads that distinguish the transaction from other transactions with the same writes. */
  reads?: string[];
  /** Consecutive failures; 3 by default. */
  times?: number;
  /** Causes the transaction until the trap is triggered. By default the load causes the transaction. */
  provoke?(scene: Scene): Promise<unknown>;
}

const ENGINES = ['engine-1', 'engine-2'] as const;
const WORKERS = ['worker-1', 'worker-2'] as const;

const act =
  (kind: ActKind) =>
  async ({ client }: Scene): Promise<void> => {
    await client.acts.sendNew(kind);
  };

/** Failed expiry scans, one per second: more than usual, because the first scans find no expired token yet. */
const SCANS = 4;

/** The beginning of the insert of proofs; the insert of revocations has different columns. */
export const APPENDS_PROOFS = 'insert into svc.log_entry (leaf_index, at, tenant_no, kind, lane, ';

export const WRITE_POINTS: WritePoint[] = [
  {
    what: 'the engine accepts admissions',
    files: ['admissions/intake.ts'],
    of: [...ENGINES],
    has: ['select svc.store_admissions('],
    also: ['insert into svc.idempotency_key '],
  },
  {
    what: 'the engine accepts a batch',
    files: ['batches/accept.ts'],
    of: [...ENGINES],
    has: ['insert into svc.batch_progress '],
    also: [
      'insert into svc.batch ',
      'insert into svc.batch_part ',
      'insert into svc.chunk_pending ',
      'insert into svc.batch_watch ',
    ],
    provoke: async ({ client }) => {
      await client.send(client.newBatch());
    },
  },
  {
    what: 'the engine accepts an approval',
    files: ['admissions/approvals.ts'],
    of: [...ENGINES],
    has: ['insert into svc.intake '],
    also: ['insert into svc.intake_pending (proof_id, accepted_at) '],
    reads: ['select proof_id as "proofid", approval from svc.intake '],
    provoke: approve,
  },
  {
    what: 'the engine accepts a revocation',
    files: ['lifecycle/revocations.ts'],
    of: [...ENGINES],
    has: ['insert into svc.revocation_request', 'insert into svc.revocation_pending'],
    provoke: act('revocation'),
  },
  {
    what: 'the engine creates a share token',
    files: ['lifecycle/share-tokens.ts'],
    of: [...ENGINES],
    has: ['insert into svc.share_token '],
    provoke: act('token'),
  },
  {
    what: 'the engine revokes a share token',
    files: ['lifecycle/share-tokens.ts'],
    of: [...ENGINES],
    has: ['insert into svc.share_revocation '],
    provoke: async (scene) => {
      await act('token')(scene);
      await act('token end')(scene);
    },
  },
  {
    what: 'the engine creates a package',
    files: ['lifecycle/packages.ts'],
    of: [...ENGINES],
    has: ['insert into svc.trust_package ', 'insert into svc.package_member '],
    provoke: act('package'),
  },
  {
    what: 'a worker appends admissions',
    files: ['admissions/pending.ts', 'log/append.ts', 'batches/chunks.ts'],
    of: [...WORKERS],
    has: [APPENDS_PROOFS],
    also: [
      'delete from svc.chunk_pending where chunk_id = any($2::uuid[]) and current_setting',
      'delete from svc.intake_pending ',
      'insert into svc.tile ',
      'update svc.log_head ',
      'update svc.batch_progress ',
    ],
  },
  {
    what: 'a worker appends the close of a run',
    files: ['log/append.ts'],
    of: [...WORKERS],
    has: [APPENDS_PROOFS],
    reads: ['i.run_closes as closes, e.leaf_index as '],
    provoke: async ({ client }) => {
      const { member, close } = client.newRun();
      await client.sendUntilAcknowledged(member);
      await client.send(close);
    },
  },
  {
    what: 'a worker appends a second decision',
    files: ['log/append.ts'],
    of: [...WORKERS],
    has: [APPENDS_PROOFS],
    reads: ['left join svc.intake p on p.proof_id = i.approves '],
    provoke: approve,
  },
  {
    what: 'a worker appends a revocation',
    files: ['lifecycle/revocations.ts', 'log/append.ts'],
    of: [...WORKERS],
    has: ['delete from svc.revocation_pending ', 'insert into svc.revocation_reason '],
    also: ['insert into svc.log_entry '],
    provoke: act('revocation'),
  },
  {
    what: 'a worker leases the next chunk of a batch',
    files: ['batches/chunks.ts'],
    of: [...WORKERS],
    has: ['update svc.chunk_pending c set leased_at = clock_timestamp() '],
    also: ['insert into svc.chunk_lease '],
    provoke: async ({ client }) => {
      await client.send(client.newBatch());
    },
  },
  {
    what: 'a worker requeues expired chunk leases',
    files: ['batches/chunks.ts'],
    of: [...WORKERS],
    has: ['update svc.chunk_pending c set leased_at = null '],
    times: 2,
  },
  {
    what: 'the verifier writes verdicts',
    files: ['log/verdicts.ts'],
    of: ['verifier'],
    has: ['insert into svc.verdict'],
    also: ['insert into svc.expiry '],
  },
  {
    what: 'the publisher appends a snapshot entry',
    files: ['log/log.ts'],
    of: ['publisher'],
    has: ['select svc.append_snapshot('],
  },
  {
    what: 'the verifier appends a verdict entry',
    files: ['log/log.ts'],
    of: ['verifier'],
    has: ['select svc.append_verdict('],
  },
  {
    what: 'the verifier records an erasure',
    files: ['log/verdicts.ts'],
    of: ['verifier'],
    has: ['delete from svc.erasure_due ', 'insert into svc.verdict'],
    also: ['delete from svc.expiry where leaf_index = any'],
    provoke: act('erasure'),
  },
  {
    what: 'the verifier records the expiry of an artifact',
    files: ['log/verdicts.ts'],
    of: ['verifier'],
    has: ['delete from svc.expiry where (leaf_index, artifact_kind) ', 'insert into svc.verdict'],
    provoke: async ({ client, world }) => {
      const set = (passport: string): Promise<unknown> =>
        world.admin(['tenant', 'validity', client.tenantId, 'none', passport, 'none', 'none']);
      // No other admission may be accepted now, because it would expire too.
      await client.stop();
      await set('1');
      const own = [0, 1, 2, 3].map(() => client.newSingle());
      for (const single of own) single.ends = true;
      await Promise.all(own.map((single) => client.sendUntilAcknowledged(single)));
      await set('none');
      client.start();
      await sleep(1_500);
    },
  },
  {
    what: 'the verifier records the expiry of a share token',
    files: ['lifecycle/share-tokens.ts'],
    of: ['verifier'],
    has: ['insert into svc.share_expiry '],
    also: ['delete from svc.share_due '],
    times: SCANS,
    provoke: act('token'),
  },
  {
    what: 'the verifier records an expiry scan',
    files: ['log/verdicts.ts'],
    of: ['verifier'],
    has: ['update svc.upkeep '],
  },
  {
    what: 'the scrubber stores its position',
    files: ['log/verdicts.ts'],
    of: ['verifier'],
    has: ['update svc.scrub set next_index = $1,'],
    times: 2,
  },
  {
    what: 'the publisher stores a checkpoint',
    files: ['log/log.ts'],
    of: ['publisher'],
    has: ['insert into svc.checkpoint '],
  },
  {
    what: 'an operator registers an approver',
    files: ['lifecycle/approvers.ts'],
    of: ['admin'],
    has: ['insert into svc.approver '],
    also: ['select svc.append_approver('],
    provoke: registerApprover,
  },
  {
    what: 'an operator erases a payload',
    files: ['erasure/erase.ts', 'log/log.ts'],
    of: ['admin'],
    has: ['insert into svc.erasure ', 'select svc.append_erasure('],
    also: [
      'update svc.intake set request = null, request_hash = null, seed = null ',
      'update svc.log_entry set signature = null, reasons = null, budgets = null, action = null, intent_id = null, ',
      "update svc.refusal set detail = '' ",
      'update svc.revocation_request r set document = null ',
      'update svc.revocation_reason set document = null ',
      'delete from svc.idempotency_key ',
      'update svc.batch set items_hash = null ',
    ],
    provoke: act('erasure'),
  },
];

/** Writes without a fault scenario, and the reason. */
export const WRITES_WITHOUT_SCENARIO: [file: string, statements: string[], why: string][] = [
  [
    'ops/traces.ts',
    ['delete from svc.trace ', 'insert into svc.trace '],
    'after the commit of the admission: a lost write costs only spans',
  ],
  [
    'ops/queries.ts',
    ['select svc.record_maintenance(', 'select svc.record_fsck('],
    'one time stamp, written by commands; a command that fails to write the time stamp reports the failure',
  ],
  [
    'log/log.ts',
    ['select svc.append_delegation('],
    'a lost response leaves a key that no process has; the worker delegates to another key a second later',
  ],
  [
    'log/adopt.ts',
    ['select svc.begin_adoption(', 'select svc.adopt_entries(', 'select svc.finish_adoption('],
    'one transaction while all programs are stopped: test/programs/admin-log-adopt.test.ts kills and repeats the command',
  ],
  [
    'erasure/tenant.ts',
    ['delete from svc.idempotency_key ', 'update svc.batch_part set problems = null '],
    'the next run of `erase tenant` continues: test/programs/admin-erase.test.ts kills the command',
  ],
  [
    'admissions/pending.ts',
    ['insert into svc.refusal ', 'update svc.intake set refused = true '],
    'part of the transaction that appends the rest of the group',
  ],
  [
    'admissions/counters.ts',
    ['insert into svc.counter '],
    'part of the transaction that appends the proofs',
  ],
  [
    'lifecycle/revocations.ts',
    ['update svc.revocation_request set refused = '],
    'part of the transaction that appends the rest of the group',
  ],
  [
    'batches/chunks.ts',
    [
      'delete from svc.chunk_pending where chunk_id = any($1::uuid[]) returning',
      'insert into svc.intake_pending (proof_id, accepted_at, batch_id, batch_items) ',
    ],
    'one statement: without it the chunk is leased again, and with it the requeue finds the admissions',
  ],
  [
    'batches/chunks.ts',
    ['delete from svc.batch_watch '],
    'one transaction deletes and counts the row, so a failure changes nothing',
  ],
  [
    'log/verdicts.ts',
    ['update svc.scrub set next_index = case '],
    'occurs only after a key compromise or the erasure of a failed proof: test/workers/verify-keys.test.ts',
  ],
  [
    'tenants/api-keys.ts',
    [
      'insert into svc.api_key ',
      'update svc.api_key set ',
      'select svc.create_api_key(',
      'select svc.revoke_api_key(',
    ],
    '`admin key list` and `GET /v1/keys` show whether the key changed',
  ],
  [
    'tenants/administration.ts',
    [
      'insert into svc.tenant ',
      'update svc.tenant set ',
      'update svc.lane set ',
      'insert into svc.fixture ',
    ],
    'a repeated command changes nothing',
  ],
  [
    'admissions/policies.ts',
    ['insert into svc.policy_set ', 'insert into svc.policy_activation '],
    'a set is stored by its digest, and `admin policy list` shows which is active',
  ],
  [
    'admissions/overlays.ts',
    ['insert into svc.overlay_set ', 'select svc.store_overlay(', 'select svc.activate_overlay('],
    'an overlay is stored by its digest, and `GET /v1/overlays` shows which is active',
  ],
  [
    'lifecycle/approvers.ts',
    ['select svc.register_approver(', 'select svc.retire_approver('],
    'a repeated request changes nothing, and `GET /v1/approvers` shows the state',
  ],
  ['log/adopt.ts', ['select svc.end_log('], 'a repeated retirement reports the first one'],
  [
    'ops/queries.ts',
    ['select svc.record_heartbeat('],
    'nothing depends on a single heartbeat: the next follows after two seconds',
  ],
  [
    'schema/migrate.ts',
    ['insert into public.svc_migration '],
    'a migration acknowledges nothing, and an interrupted migration is repeated',
  ],
];

export const linksOf = ({ world }: Scene, { of }: WritePoint): TcpProxy[] =>
  of.map((name) => world.links[name]);
