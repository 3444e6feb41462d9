import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { newUuidHex } from '#api/engine/http/new-id';
import { parseApiKey } from '#protocol/api-key';
import { fromHex, toBase64Url } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { hashHex } from '#protocol/hash';
import { jwkThumbprint } from '#protocol/keys';
import { tokenHash } from '#protocol/snapshot/share';
import type { ArtifactKind } from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto/node';
import { appendRevocation, ensureKeyActive } from '#sql/lifecycle/entries';
import { createPackage } from '#sql/lifecycle/packages';
import { createShareToken, revokeShareToken, type ShareTarget } from '#sql/lifecycle/share-tokens';
import { authenticate } from '#sql/tenants/authenticate';
import { scrub } from '#workers/verify/scrub';
import { scanExpiries } from '#workers/verify/expiries';
import type { TestDatabase } from './database.js';
import { issueKey } from './engine.js';
import { openRegistry, TENANT, type TestRegistry } from './registry.js';
import { testKey } from './snapshot.js';

/** A registry in which everything happens that a publisher can have to publish. */
export class EventfulRegistry {
  /** Admitted before the tick in question, and in it; the last of those is a denial. */
  readonly old: string[] = [];
  readonly fresh: string[] = [];
  /** In the order in which they were made. */
  readonly packages: string[] = [];
  readonly tokens: string[] = [];

  private constructor(
    private readonly db: TestDatabase,
    readonly registry: TestRegistry,
    readonly keyNo: number,
  ) {}

  static async open(db: TestDatabase): Promise<EventfulRegistry> {
    const registry = await openRegistry(db);
    const key = parseApiKey(await issueKey(registry, { scopes: ['lifecycle'] }));
    const keyId = key?.keyId ?? '';
    const { keyNo } = (await authenticate(registry.engine, [keyId])).get(keyId)!;
    return new EventfulRegistry(db, registry, keyNo);
  }

  /**
   * 229 proofs in four publications, so that each kind of index part has several, with packages and
   * tokens for them. Proof 209 has a passport that is over at once.
   */
  async begin(publish: () => Promise<unknown>): Promise<void> {
    const { old } = this;
    old.push(...(await this.admit(169)));
    await publish();
    for (let part = 0; part < 3; part++) {
      if (part === 2) await this.setPassportValidity(3600);
      old.push(...(await this.admit(1)));
      await this.setPassportValidity(null);
      old.push(...(await this.admit(19)));
      const packageId = await this.bundle([old[part]!, old[part + 5]!]);
      await this.share({ artifactKind: 'package', packageId });
      await this.share({ artifactKind: 'passport', proofId: old[20 + part]! });
      await publish();
    }
  }

  /**
   * Admissions and a denial, which make a tile full and begin the next; artifacts that are revoked,
   * expired and withdrawn; a key; a package that is new and one that is not what it was; tokens that
   * are new, revoked and over.
   */
  async goOn(): Promise<void> {
    const { registry, old, fresh, tokens } = this;
    fresh.push(...(await this.admit(40)));
    fresh.push(...(await this.admit(1, { action: 'DELETE_AUDIT_LOG' })));
    await this.revoke(old[5]!, 'proof');
    await this.revoke(old[7]!, 'certificate');
    const { publicKey } = testKey();
    await ensureKeyActive(registry.admin, nativeSha256, {
      keyId: jwkThumbprint(nativeSha256, publicKey),
      publicKey: toBase64Url(publicKey),
    });
    const packageId = await this.bundle([fresh[0]!, fresh[1]!]);
    await this.share({ artifactKind: 'package', packageId });
    const over = Date.now() + 1_000;
    await this.share({ artifactKind: 'trust', proofId: old[30]! }, over);
    await revokeShareToken(registry.engine, registry.tenantNo, {
      tokenHash: tokenHash(nativeSha256, tokens[1]!),
      keyNo: this.keyNo,
    });
    await this.tamper(`update svc.proof set aep = set_byte(aep, 40, get_byte(aep, 40) # 1)
      where proof_id = '${old[6]!}'::uuid`);
    await registry.verifyAll();
    await scrub(registry.verify, 10_000);
    // An hour is over for the passport that had one, and a second for the token.
    await this.tamper("update svc.expiry set expires_at = now() - interval '1 second'");
    await sleep(Math.max(0, over + 50 - Date.now()));
    await scanExpiries(registry.verify, 100);
  }

  /** Behind everybody's back: no trigger of the database is in the way. */
  tamper(statement: string): Promise<unknown> {
    return this.db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx.unsafe(statement);
    });
  }

  /** Admitted and verified. */
  async admit(count: number, overrides = {}): Promise<string[]> {
    const { registry } = this;
    const items = Array.from({ length: count }, () => registry.item(overrides));
    const ids = await registry.admitAll(items);
    await registry.verifyAll();
    return ids;
  }

  revoke(proofId: string, artifactKind: ArtifactKind): Promise<unknown> {
    return appendRevocation(this.registry.admin, nativeSha256, {
      proofId,
      artifactKind,
      reason: 'an audit found it wrong',
      actor: 'auditor',
      salt: '5'.repeat(64),
    });
  }

  /** How long passports that are admitted from now on assert, in seconds; null: no end. */
  setPassportValidity(seconds: number | null): Promise<unknown> {
    return this.db.sql`
      update svc.tenant set validity = jsonb_build_object(
        'proof', null, 'certificate', null, 'passport', ${seconds}::int, 'trust', null)
      where tenant_id = ${TENANT}`;
  }

  async bundle(proofIds: string[]): Promise<string> {
    const { engine, tenantNo } = this.registry;
    const made = await createPackage(engine, tenantNo, {
      packageId: `pkg_${newUuidHex()}`,
      keyNo: this.keyNo,
      proofIds,
      membersHash: fromHex(hashHex(nativeSha256, canonicalBytes(proofIds))),
    });
    if (made.outcome !== 'created') throw new Error(made.outcome);
    this.packages.push(made.package.packageId);
    return made.package.packageId;
  }

  async share(target: ShareTarget, expiresAt: number | null = null): Promise<void> {
    const { engine, tenantNo } = this.registry;
    const token = `share_${randomBytes(32).toString('base64url')}`;
    const made = await createShareToken(engine, tenantNo, {
      tokenHash: tokenHash(nativeSha256, token),
      keyNo: this.keyNo,
      target,
      expiresAt,
    });
    if (made.outcome !== 'created') throw new Error(made.outcome);
    this.tokens.push(token);
  }
}
