import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { fromHex, utf8 } from '#protocol/bytes';
import { hashHex } from '#protocol/hash';
import { SCHEMA } from '#protocol/schemas/ids';
import { replaySchema, type Replay } from '#protocol/schemas/proof-export';
import { nativeSha256 } from '#runtime/crypto/node';
import { connect } from '#runtime/postgres/connect';
import { packageRoot } from '#runtime/process/files';
import { manifestOf } from '#policy/policy-set';
import { readPinnedIntake } from '#sql/proofs/rebuild-aep';
import { readPolicySet, storePolicySet, type PolicyFiles } from '#sql/admissions/policies';
import { admissionEnvelope, agentItem, outcomeEnvelope } from '../../fixtures/agent.js';
import { alterations } from '../../fixtures/altered.js';
import { executeBody, headersFor } from '../../fixtures/engine.js';
import { eraseProof } from '../../fixtures/erase.js';
import { expectProblem } from '../../fixtures/problem.js';
import { TcpProxy } from '../../fixtures/tcp-proxy.js';
import { engineTest, ofProof, replayOf, type Setup } from './setup.js';

const PATH = '/v1/proofs/replay';
const it = engineTest({ scopes: ['admit', 'export', 'verify'] });

async function replayed(setup: Setup, of: string | object): Promise<Replay> {
  const reply = await (typeof of === 'string' ? replayOf(setup, of) : setup.post(PATH, { ...of }));
  expect(reply.status, reply.bytes.toString()).toBe(200);
  return replaySchema.parse(reply.json);
}

const pointersIn = ({ differences }: Replay) => differences.map(({ pointer }) => pointer);

describe('POST /v1/proofs/replay', () => {
  it('reports a match for every demo action and for agent envelopes', async ({ setup }) => {
    const text = await readFile(join(packageRoot, 'examples', 'agent-actions.ndjson'), 'utf8');
    const actions = text.split('\n').filter((line) => line !== '');
    expect(actions.length).toBeGreaterThan(10);
    const effects = new Set<string>();
    const matching = { result: 'match', differences: [], counterfactual: null };
    for (const line of actions) {
      const fields = JSON.parse(line) as Record<string, unknown>;
      const admitted = await setup.execute(executeBody(fields));
      const receipt = (admitted.json['receipt'] ?? admitted.json) as Record<string, string>;
      effects.add(receipt['status'] ?? '');
      const replay = await replayed(setup, receipt['registry_proof_id'] ?? '');
      expect(replay).toMatchObject(matching);
      expect(replay.engine.recorded_version).toBe(replay.engine.running_version);
    }
    expect(effects).toEqual(new Set(['ADMITTED', 'DENIED']));
    const { registry } = setup;
    const [parent = ''] = await registry.admitAll([agentItem(registry, admissionEnvelope())]);
    const [outcome = ''] = await registry.admitAll([agentItem(registry, outcomeEnvelope(parent))]);
    for (const id of [parent, outcome]) expect(await replayed(setup, id)).toMatchObject(matching);
  });

  it('matches an export, and names the changes in an altered export', async ({ setup }) => {
    const document = await setup.exported(await setup.admitOne());
    expect(await replayed(setup, document)).toMatchObject({
      result: 'match',
      policy_digest: document.aep.policy.digest,
      input_hash: document.aep.policy.input_hash,
    });
    let seen = 0;
    for (const { what, document: aep } of alterations(document.aep, [['ADMIT', 'DENY']])) {
      const reply = await setup.post(PATH, { ...document, aep });
      if (reply.status === 400) continue;
      expect(reply.status, what).toBe(200);
      const altered = replaySchema.parse(reply.json);
      expect(altered.result, what).not.toBe('match');
      const pointer = what.slice(0, what.indexOf(':')).replace('/reasons/0', '/reasons');
      for (const found of pointersIn(altered)) {
        expect(found.startsWith(pointer), `${what} ${found}`).toBe(true);
      }
      expect(altered.differences.length).toBeGreaterThan(0);
      seen += 1;
    }
    expect(seen).toBeGreaterThan(25);
  });

  it('names differences without values for a key without read scope', async ({ setup }) => {
    const { registry } = setup;
    const [id = ''] = await registry.admitAll([registry.item({ intent_id: 'between-us' })]);
    const document = await setup.exported(id);
    const subject = { kind: 'execute', intent_id: 'a guess', action: 'A_GUESS' };
    const wrong = { ...document, aep: { ...document.aep, subject, salt: '00'.repeat(32) } };
    const pointers = ['/salt', '/subject/action', '/subject/intent_id'];
    const replayAs = async (scopes: string[]) => {
      const reply = await setup.post(PATH, wrong, headersFor(await setup.keyFor({ scopes })));
      return { text: reply.bytes.toString(), replay: replaySchema.parse(reply.json) };
    };
    const verifier = await replayAs(['verify']);
    expect(verifier.replay.result).toBe('divergence');
    expect(verifier.replay.differences).toEqual(pointers.map((pointer) => ({ pointer })));
    for (const secret of ['between-us', 'BOOK_RESERVATION', document.aep.salt]) {
      expect(verifier.text).not.toContain(secret);
    }
    for (const scope of ['read', 'export']) {
      const { replay } = await replayAs(['verify', scope]);
      expect(pointersIn(replay)).toEqual(pointers);
      expect(replay.differences[2]).toMatchObject({ recorded: 'a guess', replayed: 'between-us' });
    }
  });
});

it('replay of a proof that is erased during the replay > reports the erasure, not altered data', async ({
  setup,
}) => {
  const { db } = setup;
  const proofId = await setup.admitOne();
  const proxy = await TcpProxy.open(db.url, 'postgres');
  const sql = connect(proxy.urlFor(db.urlFor('svc_engine')), { application: 'test' });
  let isFirst = true;
  const readFirst = proxy.set({
    matches: (text) => /num_nulls\(i\.request/.test(text) && isFirst,
    breaks: 'answered',
    then: () => {
      isFirst = false;
      proxy.stall(true);
    },
  });
  await setup.withEngine({ sql, tenantSql: sql }, async ({ call }) => {
    const body = { schema_version: SCHEMA.replayRequest, proof_id: proofId };
    const headers = headersFor(setup.key);
    const replaying = call({ path: PATH, headers, body: JSON.stringify(body) });
    await readFirst;
    await eraseProof(db, proofId);
    proxy.stall(false);
    expectProblem(await replaying, 410, 'payload_erased');
  });
  await sql.end();
  await proxy.close();
});

/** Rewrites the texts of the active policy set without changing its digest. */
async function changeTexts(
  { byHand, db }: Setup,
  change: (policies: PolicyFiles['policies']) => void,
): Promise<void> {
  const [row] = await db.sql<{ digest: Buffer; files: PolicyFiles }[]>`
    select digest, files from svc.policy_set where digest =
      (select digest from svc.policy_activation order by activation_id desc limit 1)`;
  if (row === undefined) throw new Error('no policy set is stored');
  change(row.files.policies);
  await byHand(
    (tx) => tx`
    update svc.policy_set set files = ${tx.json(row.files as never)} where digest = ${row.digest}`,
  );
}

/** The only difference when the replay matches the altered rows, but not the hash in the log. */
const OTHER_HASH = {
  pointer: '',
  recorded: { aep_hash: expect.any(String) as string },
  replayed: { aep_hash: expect.any(String) as string },
};

describe('replay after tampering', () => {
  it('reports engine_version_differs when a different version of the policy engine decided', async ({
    setup,
  }) => {
    const { admitOne, byHand, registry } = setup;
    const id = await admitOne();
    const intake = await readPinnedIntake(registry.engine, registry.tenantNo, id);
    const set = await readPolicySet(registry.engine, intake!.policyDigest);
    const other = { engine_version: '0.0.1', engine_sha256: '00'.repeat(32) };
    const manifest = manifestOf(set!.files, other);
    const digest = Buffer.from(fromHex(hashHex(nativeSha256, utf8(manifest))));
    await storePolicySet(registry.admin, { ...set!, manifest, digest });
    await byHand((tx) =>
      tx.unsafe(`update svc.intake set policy_digest = $1 where ${ofProof(id)}`, [digest]),
    );
    const replay = await replayed(setup, id);
    expect(replay.result).toBe('engine_version_differs');
    expect(replay.differences).toEqual([OTHER_HASH]);

    const document = await setup.exported(await admitOne());
    const older = { ...document.aep, policy: { ...document.aep.policy, engine_version: '0.0.1' } };
    expect(await replayed(setup, { ...document, aep: older })).toMatchObject({
      result: 'engine_version_differs',
      differences: [{ pointer: '/policy/engine_version', recorded: '0.0.1' }],
      engine: { recorded_version: '0.0.1' },
    });
  });

  it.for([
    ['intake', 'accepted_at', `accepted_at + interval '1 second'`, '/accepted_at'],
    ['intake', 'seed', `decode(repeat('00', 32), 'hex')`, ''],
    ['intake', 'fixture_hash', `decode(repeat('00', 32), 'hex')`, ''],
    ['intake', 'request', `'x'`, '/request_commitment'],
    ['log_entry', 'effect', `'DENY'`, '/decision/effect', `'ADMIT'`],
    ['log_entry', 'reasons', `'["another"]'`, '/decision/reasons'],
    ['log_entry', 'environment', `'live'`, '/environment', `'sandbox'`],
  ] as const)(
    'reports a changed row: %s.%s',
    async ([table, column, value, pointer, before], { setup }) => {
      const id = await setup.admitOne();
      const change = (to: string) =>
        setup.byHand((tx) =>
          tx.unsafe(`update svc.${table} set ${column} = ${to} where ${ofProof(id)}`),
        );
      await change(value);
      const replay = await replayed(setup, id);
      expect(replay.result).toBe('divergence');
      expect(pointersIn(replay)).toContain(pointer);
      if (pointer === '') expect(replay.differences).toEqual([OTHER_HASH]);
      // Restores the altered column of the log entry, because the log appends nothing after an altered entry.
      if (before !== undefined) await change(before);
    },
  );

  // Must run last: this test alters the policy set of all proofs.
  it('reports the digest and decision of an altered policy', async ({ setup }) => {
    const id = await setup.admitOne();
    const before = await replayed(setup, id);
    await changeTexts(setup, (policies) => {
      policies['sandbox-tenants-may-act'] += '\n// changed';
    });
    const harmless = await replayed(setup, id);
    expect(harmless.result).toBe('divergence');
    expect(pointersIn(harmless)).toEqual(['/policy/digest']);
    expect(harmless.differences[0]?.recorded).toBe(before.policy_digest);

    // The replay does not read the engine version from the stored manifest.
    await setup.byHand(
      (tx) => tx`
      update svc.policy_set set manifest =
        regexp_replace(manifest, '"engine_version":"[^"]*"', '"engine_version":"0.0.1"')`,
    );
    expect(await replayed(setup, id)).toEqual(harmless);

    await changeTexts(setup, (policies) => {
      policies['audit-log-is-kept'] = 'forbid (principal, action, resource);';
    });
    const denying = await replayed(setup, id);
    expect(denying.differences).toMatchObject([
      { pointer: '/decision/effect', recorded: 'ADMIT', replayed: 'DENY' },
      { pointer: '/decision/reasons', replayed: ['audit-log-is-kept'] },
      { pointer: '/policy/digest' },
      { pointer: '/valid_until/certificate', recorded: null },
      { pointer: '/valid_until/passport', recorded: null },
      { pointer: '/valid_until/trust', recorded: null },
    ]);

    await changeTexts(setup, (policies) => {
      policies['sandbox-tenants-may-act'] = 'permit (principal, action';
    });
    expect((await replayed(setup, id)).differences).toContainEqual({
      pointer: '/decision/effect',
      recorded: 'ADMIT',
      replayed: 'DENY',
    });
  });
});
