import { SCHEMA } from '#protocol/schemas/ids';
import type { ArtifactKind } from '#protocol/status';
import type { Audited } from '../audit.js';
import type { Client } from '../client.js';
import type { Single } from '../memory.js';
import type { World } from '../world.js';
import { isSaidAgain, type Act, type ExpectedStatus } from './act.js';
import { expectedOf, expectedOfAll } from './expected.js';
import type { Package } from './package.js';

export type Shown = Package | { single: Single; kind: ArtifactKind };

const isPackage = (shown: Shown): shown is Package => 'members' in shown;

/** A token. Each request makes another one, so a lost answer leaves a token without an owner. */
export class ShareToken implements Act {
  attempts = 0;
  /** Number of requests without an answer, each of which may have made a token. */
  unknown = 0;
  tokenHash: string | null = null;
  /** Whether its revocation was requested. */
  isRevoked = false;
  private token: string | null = null;

  constructor(
    private readonly client: Client,
    readonly n: number,
    readonly shown: Shown,
    /** Milliseconds; null: until it is revoked. */
    readonly lastsMs: number | null,
  ) {}

  get what(): string {
    return `share token ${this.tokenHash ?? ''}`;
  }

  get acknowledged(): boolean {
    return this.token !== null;
  }

  async send(): Promise<boolean> {
    const url = this.client.urlFor(this);
    this.attempts += 1;
    // Even without an answer a token may exist.
    this.unknown += 1;
    const [status, text] = await this.client.call(
      `${url}/v1/share-tokens`,
      'POST',
      JSON.stringify(this.document()),
    );
    if (status !== 201) {
      // Its end was past by the time that it was heard of.
      const isLate = this.lastsMs !== null && text.includes('"expiry_over"');
      if (isLate) this.unknown -= 1;
      else this.client.checkResponse(status, text, 'a share token');
      return false;
    }
    this.unknown -= 1;
    const made = JSON.parse(text) as { share_token: string; token_hash: string };
    this.token = made.share_token;
    this.tokenHash = made.token_hash;
    return true;
  }

  expectedStatuses(): ExpectedStatus[] {
    const isOver = this.isRevoked || this.lastsMs !== null;
    const { shown } = this;
    const status = isPackage(shown)
      ? expectedOfAll(shown.members)
      : expectedOf(shown.single, shown.kind);
    return [{ path: `share/${this.token ?? ''}`, status: isOver ? null : status }];
  }

  async audit({ database }: World, found: Audited): Promise<void> {
    const rows = await database.sql<{ target: string; is_revoked: boolean }[]>`
      select coalesce('pkg_' || package_id, artifact_kind || ' ' || proof_id) as target,
        exists (select from svc.share_revocation r where r.token_hash = t.token_hash) as is_revoked
      from svc.share_token t where token_hash = decode(${this.tokenHash}, 'hex')`;
    const [row] = rows;
    if (row === undefined) {
      found.lost.push(`${this.what} is not there`);
      return;
    }
    const { shown } = this;
    const target = isPackage(shown)
      ? (shown.packageId ?? '')
      : `${shown.kind} ${shown.single.proofId ?? ''}`;
    if (row.target.replaceAll('-', '') !== target) found.wrong.push(`${this.what} shows another`);
    if (row.is_revoked !== this.isRevoked) found.lost.push(`the end of ${this.what}`);
  }

  private document(): object {
    const { shown, lastsMs } = this;
    const end =
      lastsMs === null ? {} : { expires_at: new Date(Date.now() + lastsMs).toISOString() };
    const head = { schema_version: SCHEMA.shareTokenRequest, ...end };
    return isPackage(shown)
      ? { ...head, artifact_kind: 'package', package_id: shown.packageId }
      : { ...head, artifact_kind: shown.kind, proof_id: shown.single.proofId };
  }
}

/** The end of a token, which is for ever. */
export class TokenRevocation implements Act {
  attempts = 0;
  acknowledged = false;

  constructor(
    private readonly client: Client,
    readonly n: number,
    private readonly token: ShareToken,
  ) {
    token.isRevoked = true;
  }

  get what(): string {
    return `the end of ${this.token.what}`;
  }

  async send(): Promise<boolean> {
    const url = this.client.urlFor(this);
    this.attempts += 1;
    const [status, text] = await this.client.call(
      `${url}/v1/share-tokens/${this.token.tokenHash ?? ''}`,
      'DELETE',
    );
    if (status !== 204) this.client.checkResponse(status, text, this.what);
    else this.acknowledged = true;
    return status === 204;
  }

  expectedStatuses(): ExpectedStatus[] {
    return this.token.expectedStatuses();
  }

  async audit(_world: World, found: Audited): Promise<void> {
    if (!(await isSaidAgain(this))) found.lost.push(`${this.what} is not known any more`);
  }
}
