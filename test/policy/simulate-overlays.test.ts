import { expect, it, vi } from 'vitest';
import { LOADED_SETS } from '#policy/decide';
import { documentOf } from '#policy/overlays';
import { makePolicySet } from '#policy/policy-set';
import { openEngines } from '#programs/admin/simulate';
import { shippedPolicy } from '#programs/shipped-policy';
import type { DecidedAdmission } from '#sql/admissions/decided';
import type { Db } from '#sql/db/transaction';
import { policyInput } from '../fixtures/policy-input.js';

let parsed = 0;
vi.mock(import('@cedar-policy/cedar-wasm/nodejs'), async (importOriginal) => {
  const cedar = await importOriginal();
  return {
    ...cedar,
    preparsePolicySet: (...given) => {
      parsed += 1;
      return cedar.preparsePolicySet(...given);
    },
  };
});

it('admin policy simulate > parses each set once when the log has more overlays than other programs keep in memory', async () => {
  const { files } = await shippedPolicy();
  const policies = { permit: 'permit (principal, action, resource);' };
  const set = await makePolicySet({ schema: files.schema, policies, sentences: {} });
  const actions = Array.from({ length: LOADED_SETS + 1 }, (_, at) => `ACTION_${at}`);
  const overlays = actions.map((action) =>
    documentOf({ own: `forbid (principal, action, resource == Svc::Operation::"${action}");` }),
  );
  const page = overlays.map(({ digest }) => ({ policyDigest: digest }) as DecidedAdmission);
  const found = (_: unknown, digest: Buffer) =>
    Promise.resolve(overlays.filter((overlay) => overlay.digest.equals(digest)));
  const engines = await openEngines(found as unknown as Db, set);
  await engines.load(page);
  const once = parsed;
  const effects = page.map(
    (row, at) => engines.of(row).decide(policyInput({ action: actions[at]! })).effect,
  );
  expect(new Set(effects)).toEqual(new Set(['DENY']));
  expect(parsed).toBe(once);
});
