import { describe, expect, it } from 'vitest';
import { attentionFor } from '#programs/admin/status';
import { readFacts } from '#programs/admin/status/facts';
import type { Logger } from '#runtime/process/log';
import { failingLeaves } from '#sql/ops/queries';
import { setValidity } from '#sql/tenants/administration';
import { recordExpiries } from '#workers/verify/expiries';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { scrub } from '#workers/verify/scrub';
import { withoutTriggers } from '../fixtures/database.js';
import { TENANT } from '../fixtures/registry.js';
import { tampering } from '../fixtures/tampering.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('test');

const { leafOf, outcomeOf, tamper } = tampering({ db, registry });

describe('signing keys', () => {
  it('when compromised, cause a scrub of their proofs, newest first, with one log line', async () => {
    const ids = await registry.admitAll(Array.from({ length: 30 }, () => registry.item()));
    await registry.verifyAll();
    const lines: unknown[] = [];
    const take = (fields: unknown): number => lines.push(fields);
    const log = { ...registry.verify.log, error: take, warn: take } as unknown as Logger;
    const verify = { ...registry.verify, log };
    const first = await leafOf(ids[3]!);
    await registry.changeKey('compromise', first);
    while ((await extendVerifiedPrefix(verify, 1000)) > 0);
    await scrub(verify, 10);
    expect(await outcomeOf(ids[29]!)).toBe('fail');
    expect(await outcomeOf(ids[3]!)).toBe('pass');
    while ((await scrub(verify, 10)).urgent);
    expect(await outcomeOf(ids[3]!)).toBe('fail');
    expect(await outcomeOf(ids[2]!)).toBe('pass');
    const { keyId: key_id } = registry.admit;
    expect(lines).toEqual([{ key_id, from: first, to: await leafOf(ids[29]!), count: 27 }]);
  });

  it('when compromised, void leaves, of which only altered leaves count as failures', async () => {
    let failures = 0;
    const failed = (leaves: number): number => (failures += leaves);
    const verify = { ...registry.verify, metrics: { verified: () => undefined, failed } };
    const counted = async () => {
      while ((await scrub(verify, 1000)).urgent);
      const facts = await readFacts(registry.admin, [], []);
      const reported = attentionFor(facts).filter(({ what }) => what.includes('do not verify'));
      return [await failingLeaves(registry.admin), failures, reported.map(({ what }) => what)];
    };
    await registry.admitAll([registry.item(), registry.item(), registry.item()]);
    await registry.verifyAll();
    await registry.changeKey('compromise', 1);
    await registry.verifyAll();
    expect(await counted()).toEqual([{ failing: 0, voided: 3 }, 0, []]);
    await withoutTriggers(
      db,
      `update svc.log_entry set signature = decode(repeat('00', 64), 'hex') where leaf_index = 2;
      insert into svc.verdict (frontier, first_index, last_index, tree_size, root, outcome, checks)
        select false, leaf, leaf, 20000, root, outcome, checks
        from svc.verdict, generate_series(1000, 11000) as leaf where not frontier and first_index = 3`,
    );
    const all = { failing: 1, voided: 10_000 };
    expect(await counted()).toEqual([all, 1, ['1 leaves do not verify']]);
  });

  it('when compromised, void leaves that do not count as failing, even after an artifact expired', async () => {
    await setValidity(registry.admin, TENANT, {
      proof: null,
      certificate: null,
      passport: null,
      trust: 3600,
    });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await registry.changeKey('compromise', 1);
    await registry.verifyAll();
    while ((await scrub(registry.verify, 1000)).urgent);
    await tamper('update svc.expiry set expires_at = now()', []);
    while ((await recordExpiries(registry.verify, 1000)) > 0);
    expect(await failingLeaves(registry.admin)).toEqual({ failing: 0, voided: 1 });
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('when compromised, void nothing until the verified prefix covers the compromise', async () => {
    const ids = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await registry.changeKey('compromise', 0);
    expect(await scrub(registry.verify, 1000)).toMatchObject({ changed: 0, urgent: false });
    expect(await outcomeOf(ids[0]!)).toBe('pass');
  });

  it.each([
    ['is gone', `delete from svc.log_entry where leaf_index = 2`],
    [
      'is stored as another kind',
      `update svc.log_entry set kind = 2, revokes = gen_random_uuid()
       where leaf_index = 2`,
    ],
    [
      'states a later first index',
      `update svc.log_entry set body = convert_to(
         replace(convert_from(body, 'UTF8'), '"from_index":0', '"from_index":9'), 'UTF8')
       where leaf_index = 2`,
    ],
  ])('stay compromised when the log entry %s', async (_, statement) => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await registry.changeKey('compromise', 0);
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
    await registry.changeKey('retire');
    await tamper(statement, []);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
    // The key also remains compromised when the verified prefix extends beyond the entry.
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('once compromised, remain void when their log entries are lost and they are activated again', async () => {
    const [before = ''] = await registry.admitAll([registry.item()]);
    await registry.changeKey('compromise', 0);
    await registry.verifyAll();
    await tamper(
      'update svc.log_entry set kind = 2, revokes = gen_random_uuid() where kind = 3',
      [],
    );
    await registry.changeKey('activate');
    const [after = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    for (const id of [before, after]) expect(await outcomeOf(id)).toBe('fail');
    await scrub(registry.verify, 1000);
    for (const id of [before, after]) expect(await outcomeOf(id)).toBe('fail');
  });
});
