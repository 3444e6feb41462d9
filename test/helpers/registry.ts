import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { fromHex, toBase64Url, utf8 } from '#protocol/bytes';
import { documentHash } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { jwkThumbprint } from '#protocol/keys';
import {
  createSigningKey,
  nativeBase64,
  nativeSha256,
  type SigningKey,
} from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { packageRoot } from '#runtime/process/package-root';
import { bulkVerification } from '#runtime/crypto/sodium';
import { createTenant, setAllowlisted, setLane } from '#sql/tenants/administration';
import { ensureKeyActive } from '#sql/lifecycle/entries';
import type { Pool } from '#sql/db/transaction';
import { acceptIntake, type IntakeItem } from '#sql/admissions/accept';
import { readOutcomes, type Settlement } from '#sql/admissions/outcomes';
import { activatePolicy, storePolicySet, type PolicyFiles } from '#sql/admissions/policies';
import { databaseTime, recordExpiryScan } from '#sql/log/verdicts';
import type { AdmitContext } from '#workers/admit/context';
import { processAdmissions } from '#workers/admit/process';
import { policyCache } from '#policy/cache';
import { makePolicySet, readPolicyFolder } from '#policy/policy-set';
import type { VerifyContext } from '#workers/verify/context';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { VoidedProofs } from '#workers/verify/voided';
import type { TestDatabase } from './database.js';

export const TENANT = 'acme';

/** A registry with a tenant, a policy and an active key, worked by the real pipeline in process. */
export interface TestRegistry {
  engine: Pool;
  admin: Pool;
  admit: AdmitContext;
  verify: VerifyContext;
  tenantNo: number;
  /** An intake item of the tenant, as the engine would make it. */
  item(overrides?: Partial<ExecuteFields>): IntakeItem;
  /** Accepts and settles; the proof ids in order. */
  admitAll(items: IntakeItem[]): Promise<string[]>;
  /** The settlements of the tenant's admissions of these ids. */
  readOutcomes(proofIds: string[]): Promise<Map<string, Settlement>>;
  /** Verifies all there is. */
  verifyAll(): Promise<void>;
}

interface ExecuteFields {
  intent_id: string;
  action: string;
  proof_chain_fixture_ref: string;
}

let counter = 0;

export async function openRegistry(
  db: TestDatabase,
  options: {
    policy?: PolicyFiles;
    /** The registry of which this database is a copy: nothing is set up again. */
    goesOn?: TestRegistry;
  } = {},
): Promise<TestRegistry> {
  const admin = db.as('svc_admin');
  const engine = db.as('svc_engine');
  const worker = db.as('svc_worker');
  const { goesOn } = options;
  const signer = goesOn?.admit.signer ?? freshSigner();
  const keyId = jwkThumbprint(nativeSha256, signer.publicKey);
  const tenantNo =
    goesOn?.tenantNo ??
    (await setUp(admin, options.policy, { keyId, publicKey: signer.publicKey }));
  const log = logger('test', 'silent');
  const admit: AdmitContext = {
    sql: worker,
    log,
    signer,
    keyId,
    policy: policyCache(worker),
    laneLocked: false,
  };
  const { verify: signatures } = await bulkVerification();
  const verify: VerifyContext = {
    sql: db.as('svc_verifier'),
    crypto: { sha256: nativeSha256, verify: signatures, base64: nativeBase64 },
    log,
    voided: new VoidedProofs(),
  };
  return {
    engine,
    admin,
    admit,
    verify,
    tenantNo,
    item: (overrides = {}) => {
      const request: JsonValue = {
        schema_version: 'svc.runtime.intent_execute.request/1.0',
        intent_id: `intent-${++counter}`,
        tenant_id: TENANT,
        action: 'BOOK_RESERVATION',
        ...overrides,
      };
      return {
        proofId: uuidv7().replaceAll('-', ''),
        tenantNo,
        lane: 1,
        request: utf8(JSON.stringify(request)),
        requestHash: fromHex(documentHash(nativeSha256, request)),
        salt: randomBytes(32),
        fixtureRef: overrides.proof_chain_fixture_ref ?? null,
        idempotencyKey: null,
        keyNo: null,
      };
    },
    admitAll: async (items) => {
      const outcomes = await acceptIntake(engine, items);
      const ids = outcomes.map((outcome) => {
        if (outcome.outcome === 'idempotency_conflict') throw new Error('a key has another body');
        return outcome.proofId;
      });
      await processAdmissions(admit, ids);
      return ids;
    },
    readOutcomes: (proofIds) =>
      readOutcomes(
        engine,
        proofIds.map((id) => ({ tenantNo, id })),
      ),
    verifyAll: async () => {
      while ((await extendVerifiedPrefix(verify, 1000)) > 0);
      // A publisher asserts only while the verifier looks; what it would find, tests look for.
      await recordExpiryScan(verify.sql, await databaseTime(verify.sql));
    },
  };
}

function freshSigner(): SigningKey {
  const keys = mkdtempSync(join(tmpdir(), 'svc-keys-'));
  const signer = createSigningKey(join(keys, 'aep.pem'));
  rmSync(keys, { recursive: true });
  return signer;
}

async function setUp(
  admin: Pool,
  policy: PolicyFiles | undefined,
  { keyId, publicKey }: { keyId: string; publicKey: Uint8Array },
): Promise<number> {
  const files = policy ?? (await readPolicyFolder(join(packageRoot, 'policy', 'default')));
  const set = await makePolicySet(files);
  await storePolicySet(admin, set);
  await activatePolicy(admin, set.digest);
  await ensureKeyActive(admin, nativeSha256, { keyId, publicKey: toBase64Url(publicKey) });
  await createTenant(admin, { tenantId: TENANT, environment: 'sandbox' });
  await setAllowlisted(admin, TENANT, true);
  await setLane(admin, 'sandbox', true);
  const [tenant] = await admin<{ tenant_no: number }[]>`
    select tenant_no from svc.tenant where tenant_id = ${TENANT}`;
  return tenant?.tenant_no ?? 0;
}
