import { SCHEMA } from '#protocol/schemas/ids';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import { adminWith, done } from '../fixtures/admin.js';
import type { Audited } from './audit.js';
import type { Client } from './client.js';
import type { Single } from './records.js';
import { until } from './pace.js';
import { expectedOf, expectedOfAll, pathOf, type ExpectedStatus } from './public.js';
import type { World } from './world.js';

const RESEND_MS = 30_000;

/** A request other than an admission, such as a revocation, a package or an erasure. */
export abstract class Act {
  attempts = 0;
  /** Proofs in the log that the request caused. */
  readonly proofIds: readonly string[] = [];
  /** The first acknowledgement, which every later acknowledgement must equal. */
  protected answer: string | null = null;

  constructor(
    protected readonly client: Client,
    readonly n = 0,
  ) {}

  /** A description for the report. */
  abstract get what(): string;

  get acknowledged(): boolean {
    return this.answer !== null;
  }

  /** Sends the request, for the first time or again. Throws when there is no response. */
  abstract send(): Promise<boolean>;
  abstract expectedStatuses(): ExpectedStatus[];

  /** Sends the request again after it was committed, which must change nothing. */
  async audit(_world: World, found: Audited): Promise<void> {
    const isSame = await until(() => this.send().catch(() => false), RESEND_MS, 100);
    if (!isSame) found.lost.push(`${this.what} is not acknowledged again`);
  }

  /** Sends an attempt to the next engine. */
  protected call(method: string, path: string, body?: object): Promise<[number, string]> {
    const url = this.client.urlFor(this);
    this.attempts += 1;
    return this.client.call(url + path, method, body && JSON.stringify(body));
  }

  protected acknowledge(answer: string, members: readonly Single[] = []): true {
    if (this.answer === null) for (const member of members) member.open -= 1;
    else if (this.answer !== answer) this.client.records.broken.push(`${this.what} has changed`);
    this.answer ??= answer;
    return true;
  }

  protected reject(status: number, text: string): false {
    this.client.checkResponse(status, text, this.what);
    return false;
  }
}

/** The revocation of one artifact. The log has the revocation once, with its first reason. */
export class Revocation extends Act {
  constructor(
    client: Client,
    n: number,
    readonly single: Single,
    readonly kind: ArtifactKind,
  ) {
    super(client, n);
    single.revoked.add(kind);
    single.open += 1;
  }

  get what(): string {
    return `the revocation of the ${this.kind} of ${this.single.proofId ?? ''}`;
  }

  async send(): Promise<boolean> {
    const path = `/v1/proofs/${this.single.proofId ?? ''}/revocations`;
    const [status, text] = await this.call('POST', path, {
      schema_version: SCHEMA.revocationRequest,
      artifact_kind: this.kind,
      reason: 'made by mistake',
      actor: 'operator',
    });
    if (status === 200 || status === 201) return this.acknowledge(text, [this.single]);
    return status === 202 ? false : this.reject(status, text);
  }

  expectedStatuses(): ExpectedStatus[] {
    const { single, kind } = this;
    return [{ path: pathOf(single, kind), status: expectedOf(single, kind) }];
  }
}

/** A package: requests with the same ordered members lead to the same package. */
export class Package extends Act {
  packageId: string | null = null;

  constructor(
    client: Client,
    n: number,
    readonly members: readonly Single[],
  ) {
    super(client, n);
    for (const member of members) {
      member.open += 1;
      member.inPackage = true;
    }
  }

  get what(): string {
    return `package ${this.packageId ?? ''} of ${this.members.map((one) => one.proofId).join(', ')}`;
  }

  async send(): Promise<boolean> {
    const [status, text] = await this.call('POST', '/v1/packages', {
      schema_version: SCHEMA.packageRequest,
      proof_ids: this.members.map((member) => member.proofId),
    });
    if (status !== 200 && status !== 201) return this.reject(status, text);
    this.packageId ??= (JSON.parse(text) as { package_id: string }).package_id;
    return this.acknowledge(text, this.members);
  }

  expectedStatuses(): ExpectedStatus[] {
    return [{ path: `package/${this.packageId ?? ''}`, status: expectedOfAll(this.members) }];
  }

  override async audit(world: World, found: Audited): Promise<void> {
    await super.audit(world, found);
    // A busy engine may reject the request at first.
    const isSame = await until(
      async () => {
        const path = `/v1/packages/${this.packageId ?? ''}`;
        const [status, text] = await this.call('GET', path).catch(() => [0, ''] as const);
        return status === 200 && text === this.answer;
      },
      RESEND_MS,
      100,
    );
    if (!isSame) found.lost.push(`${this.what} is returned with other content`);
  }
}

/** The artifact or package that a token shares. */
interface Shared {
  request: object;
  /** The value of the column `target` in the audit query. */
  target: string;
  status(): string;
}

export const sharedPackage = ({ packageId, members }: Package): Shared => ({
  request: { artifact_kind: 'package', package_id: packageId },
  target: packageId ?? '',
  status: () => expectedOfAll(members),
});

export const sharedArtifact = (single: Single, kind: ArtifactKind): Shared => ({
  request: { artifact_kind: kind, proof_id: single.proofId },
  target: `${kind} ${single.proofId ?? ''}`,
  status: () => expectedOf(single, kind),
});

/** A share token. Each request creates a token, so a lost response leaves a token that the client does not know. */
export class ShareToken extends Act {
  /** Number of requests without a response, each of which may have created a token. */
  unknown = 0;
  tokenHash: string | null = null;
  isRevoked = false;

  constructor(
    client: Client,
    n: number,
    readonly shared: Shared,
    /** Validity of the token in milliseconds; null without an expiry. */
    readonly lastsMs: number | null,
  ) {
    super(client, n);
  }

  get what(): string {
    return `share token ${this.tokenHash ?? ''}`;
  }

  async send(): Promise<boolean> {
    const { shared, lastsMs } = this;
    this.unknown += 1;
    const [status, text] = await this.call('POST', '/v1/share-tokens', {
      schema_version: SCHEMA.shareTokenRequest,
      ...(lastsMs !== null && { expires_at: new Date(Date.now() + lastsMs).toISOString() }),
      ...shared.request,
    });
    // A short validity may have ended before the engine received the request.
    const isLate = lastsMs !== null && text.includes('"expiry_over"');
    if (status === 201 || isLate) this.unknown -= 1;
    if (status !== 201) return isLate ? false : this.reject(status, text);
    const created = JSON.parse(text) as { share_token: string; token_hash: string };
    this.tokenHash = created.token_hash;
    return this.acknowledge(created.share_token);
  }

  expectedStatuses(): ExpectedStatus[] {
    const { shared, isRevoked, lastsMs } = this;
    const hasEnded = isRevoked || lastsMs !== null;
    return [{ path: `share/${this.answer ?? ''}`, status: hasEnded ? null : shared.status() }];
  }

  override async audit({ database }: World, found: Audited): Promise<void> {
    const [row] = await database.sql<{ target: string; is_revoked: boolean }[]>`
      select coalesce('pkg_' || package_id, artifact_kind || ' ' || proof_id) as target,
        exists (select from svc.share_revocation r where r.token_hash = t.token_hash) as is_revoked
      from svc.share_token t where token_hash = decode(${this.tokenHash}, 'hex')`;
    if (row === undefined) {
      found.lost.push(`${this.what} is missing`);
      return;
    }
    if (row.target.replaceAll('-', '') !== this.shared.target)
      found.wrong.push(`${this.what} resolves to ${row.target}`);
    if (row.is_revoked !== this.isRevoked)
      found.lost.push(`${this.what} is ${row.is_revoked ? '' : 'not '}revoked`);
  }
}

export class TokenRevocation extends Act {
  constructor(
    client: Client,
    n: number,
    private readonly token: ShareToken,
  ) {
    super(client, n);
    token.isRevoked = true;
  }

  get what(): string {
    return `the revocation of ${this.token.what}`;
  }

  async send(): Promise<boolean> {
    const path = `/v1/share-tokens/${this.token.tokenHash ?? ''}`;
    const [status, text] = await this.call('DELETE', path);
    return status === 204 ? this.acknowledge('') : this.reject(status, text);
  }

  expectedStatuses(): ExpectedStatus[] {
    return this.token.expectedStatuses();
  }
}

/** The output of `admin erase`; `erased` is false when the proof was erased before. */
interface Erased {
  erased: boolean;
  erased_at: string;
}

/** The erasure of an admission's payload by an operator. */
export class Erasure extends Act {
  constructor(
    client: Client,
    private readonly single: Single,
    private readonly url: string,
  ) {
    super(client);
    single.isErased = true;
  }

  get what(): string {
    return `the erasure of ${this.proofId}`;
  }

  get proofId(): string {
    return this.single.proofId ?? '';
  }

  async send(): Promise<boolean> {
    const { erased_at } = await this.erase();
    return this.acknowledge(erased_at);
  }

  expectedStatuses(): ExpectedStatus[] {
    const { single } = this;
    return ARTIFACT_KINDS.map((kind) => ({
      path: pathOf(single, kind),
      status: expectedOf(single, kind),
    }));
  }

  override async audit({ database }: World, found: Audited): Promise<void> {
    // On a busy machine the first attempts may fail with a lock timeout.
    const records: Erased[] = [];
    const repeat = async (): Promise<boolean> => records.push(await this.erase()) > 0;
    await until(() => repeat().catch(() => false), RESEND_MS, 100);
    const [record] = records;
    if (record?.erased !== false || record.erased_at !== this.answer) {
      found.lost.push(`${this.what} is not recorded`);
    }
    const [row] = await database.sql<{ records: number; remains: boolean }[]>`
      select (select count(*) from svc.audit where object = 'erasure' and operation = 'INSERT'
          and (after ->> 'proof_id')::uuid = ${this.proofId})::int as records,
        num_nonnulls(i.request, i.request_hash, i.seed, e.signature, e.reasons,
          e.budgets, e.action, e.intent_id) > 0 as remains
      from svc.intake i join svc.log_entry e using (proof_id)
      where proof_id = ${this.proofId}::uuid`;
    if (row?.records !== 1) found.double.push(`${this.what} has ${String(row?.records)} records`);
    if (row?.remains !== false) found.lost.push(`${this.what} is incomplete`);
    const url = this.client.urlFor(this.single);
    const [status] = await this.client.call(`${url}/v1/admissions/${this.proofId}`, 'GET');
    if (status !== 410)
      found.wrong.push(`the engine answers ${String(status)}, not 410, after ${this.what}`);
  }

  private async erase(): Promise<Erased> {
    const admin = adminWith({ DATABASE_URL: this.url });
    const line = ['--reason', 'CASE-7', '--confirm', this.proofId, '--json'];
    const record = await done(admin('erase', this.proofId, ...line));
    return record as unknown as Erased;
  }
}
