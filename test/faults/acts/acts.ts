import { ARTIFACT_KINDS } from '#protocol/status';
import type { Client } from '../client.js';
import type { Single } from '../memory.js';
import type { Act } from './act.js';
import { Erasure } from './erasure.js';
import { Package } from './package.js';
import { Revocation } from './revocation.js';
import { ShareToken, TokenRevocation, type Shown } from './share-token.js';

export type ActKind = 'revocation' | 'package' | 'token' | 'token end' | 'erasure';
/** Acts of each kind per second. */
export type ActRates = Record<ActKind, number>;
export const NO_ACTS: ActRates = {
  revocation: 0,
  package: 0,
  token: 0,
  'token end': 0,
  erasure: 0,
};

const MEMBERS = 3;
/** One of this many tokens expires, this long after its creation. */
const ONE_ENDS_IN = 3;
const LASTS_MS = 1_500;

/** Acts of a tenant and its operator on admissions, newest first. */
export class Acts {
  readonly kinds = ['revocation', 'package', 'token', 'token end', 'erasure'] as const;
  readonly asked: Act[] = [];
  private readonly counts: Record<ActKind, number> = {
    revocation: 0,
    package: 0,
    token: 0,
    'token end': 0,
    erasure: 0,
  };

  constructor(
    private readonly client: Client,
    private readonly eraseUrl: string,
  ) {}

  /** One more of a kind; whether it was acknowledged. There may be nothing yet to do it to. */
  async sendNew(kind: ActKind): Promise<boolean> {
    const act = this.newOf(kind);
    if (act === null) return false;
    this.asked.push(act);
    return this.send(act);
  }

  async send(act: Act): Promise<boolean> {
    return act.send().catch(() => false);
  }

  private newOf(kind: ActKind): Act | null {
    const { client } = this;
    const n = this.counts[kind]++;
    switch (kind) {
      case 'revocation': {
        const single = this.newest(({ revoked }) => revoked.size === 0)[0];
        // Kinds in turn: engines are, too, and in another rhythm.
        const artifact = ARTIFACT_KINDS[Math.floor(n / 2) % ARTIFACT_KINDS.length] ?? 'proof';
        return single === undefined ? null : new Revocation(client, n, single, artifact);
      }
      case 'package': {
        const members = this.newest((one) => !one.inPackage, MEMBERS);
        return members.length < MEMBERS ? null : new Package(client, n, members);
      }
      case 'token': {
        const shown = this.toShow(n);
        const lastsMs = n % ONE_ENDS_IN === 1 ? LASTS_MS : null;
        return shown === null ? null : new ShareToken(client, n, shown, lastsMs);
      }
      case 'token end': {
        const token = this.asked.findLast(
          (one) =>
            one instanceof ShareToken &&
            one.acknowledged &&
            !one.isRevoked &&
            one.lastsMs === null &&
            one.n % 2 === 0,
        );
        return token === undefined ? null : new TokenRevocation(client, n, token as ShareToken);
      }
      case 'erasure': {
        // Proofs without another request, members of packages, and revoked proofs.
        const wanted = [
          (one: Single) => !one.inPackage && one.revoked.size === 0,
          (one: Single) => one.inPackage,
          (one: Single) => one.revoked.size > 0,
        ][n % 3];
        const single = this.newest((one) => one.open === 0 && wanted?.(one) === true)[0];
        return single === undefined ? null : new Erasure(client, single, this.eraseUrl);
      }
    }
  }

  private toShow(n: number): Shown | null {
    const single = this.newest(() => true)[0];
    if (single === undefined) return null;
    const made = this.asked.findLast((one) => one instanceof Package && one.acknowledged);
    if (n % 2 === 1 && made !== undefined) return made as Package;
    return { single, kind: ARTIFACT_KINDS[n % ARTIFACT_KINDS.length] ?? 'proof' };
  }

  /** The admissions that were acknowledged last, not erased, and of which this holds. */
  private newest(holds: (single: Single) => boolean, most = 1): Single[] {
    const { admitted } = this.client.memory;
    const found: Single[] = [];
    for (let at = admitted.length - 1; at >= 0 && found.length < most; at -= 1) {
      const single = admitted[at];
      if (single !== undefined && !single.isErased && holds(single)) found.push(single);
    }
    return found;
  }
}
