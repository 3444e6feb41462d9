import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseEntry } from '#protocol/entries';
import { canonicalBytes } from '#protocol/json';
import type { Registration } from '#protocol/schemas/approvals';
import { keyEntries } from '#sql/log/keys';
import { done } from '../fixtures/admin.js';
import { newApprover } from '../fixtures/approvals.js';
import { withoutTriggers } from '../fixtures/database.js';
import { TENANT } from '../fixtures/registry.js';
import { testFolder } from '../fixtures/test-folder.js';
import { testRegistry } from './world.js';

const { db, registry, admin } = await testRegistry();
const folder = await testFolder();

function fileOf(registration: Registration): string {
  const file = join(folder, `${registration.salt}.json`);
  writeFileSync(file, canonicalBytes(registration));
  return file;
}

describe('admin approver', () => {
  it('logs the hash of a registration and its retirement, and keeps the document', async () => {
    const { registration, registrationHash } = newApprover();
    const state = async () => (await done(admin('approver', 'list', TENANT))) as unknown;
    await done(admin('approver', 'add', TENANT, fileOf(registration)));
    expect(await state()).toEqual([
      {
        registration_hash: registrationHash,
        approver: 'ops-lead',
        state: 'active',
        created_by: null,
      },
    ]);
    const [stored] = await db.sql<{ document: Buffer }[]>`select document from svc.approver`;
    expect(stored?.document).toEqual(Buffer.from(canonicalBytes(registration)));
    expect((await admin('approver', 'add', TENANT, fileOf(registration))).err).toMatch(
      /already in the log/,
    );
    await done(admin('approver', 'retire', registrationHash, '--confirm', registrationHash));
    expect(await state()).toMatchObject([{ state: 'retired' }]);
    const again = await admin(
      'approver',
      'retire',
      registrationHash,
      '--confirm',
      registrationHash,
    );
    expect(again.err).toMatch(/already retired/);
    const changes = (await keyEntries(registry.admin)).flatMap(({ body }) => {
      const entry = parseEntry(body);
      return entry.type === 'key' && entry.use === 'approver' ? [entry] : [];
    });
    expect(changes).toMatchObject([
      { registration_hash: registrationHash, change: 'activate' },
      { registration_hash: registrationHash, change: 'retire' },
    ]);
  });

  it('rejects unknown names, and a registration that belongs to another tenant, is malformed or is not signed by its key', async () => {
    const own = newApprover().registration;
    for (const [registration, why] of [
      [newApprover('rival').registration, /of the tenant rival/],
      [{ ...own, signature: newApprover().registration.signature }, /possession/],
      [{ ...own, approver: 'someone else' }, /possession/],
      [{ ...own, salt: '00' }, /salt expected 64/],
    ] as const) {
      expect((await admin('approver', 'add', TENANT, fileOf(registration))).err).toMatch(why);
    }
    expect((await admin('approver', 'list', 'none')).err).toMatch(/unknown tenant none/);
    const unknown = '00'.repeat(32);
    expect((await admin('approver', 'retire', unknown, '--confirm', unknown)).err).toMatch(
      /never activated/,
    );
  });

  it('reports a damaged key entry as damaged, not as a registration that was never activated', async () => {
    const { registration, registrationHash } = newApprover();
    await done(admin('approver', 'add', TENANT, fileOf(registration)));
    await withoutTriggers(
      db,
      `update svc.log_entry set body = '{}' where convert_from(body, 'utf8') like '%${registrationHash}%'`,
    );
    const retired = await admin(
      'approver',
      'retire',
      registrationHash,
      '--confirm',
      registrationHash,
    );
    expect(retired.err).toMatch(/damaged: run fsck/);
    expect((await admin('approver', 'add', TENANT, fileOf(registration))).err).toMatch(
      /is stored, but the log lacks its activation: run fsck/,
    );
    await done(admin('approver', 'add', TENANT, fileOf(newApprover().registration)));
  });
});
