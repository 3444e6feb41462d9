import { ARTIFACT_KINDS } from '#protocol/status';
import {
  Erasure,
  Package,
  Revocation,
  sharedArtifact,
  sharedPackage,
  ShareToken,
  TokenRevocation,
  type Act,
} from './acts.js';
import type { Client } from './client.js';
import type { Single } from './records.js';

export const ACT_KINDS = ['revocation', 'package', 'token', 'token end', 'erasure'] as const;
export type ActKind = (typeof ACT_KINDS)[number];
export type ActRates = Record<ActKind, number>;
export const NO_ACTS: ActRates = {
  revocation: 0,
  package: 0,
  token: 0,
  'token end': 0,
  erasure: 0,
};

const MEMBERS = 3;
const SHORT_TOKEN_MS = 1_500;

/** Acts of a tenant and its operator, each on the newest admissions that are suitable. */
export class Acts {
  readonly sent: Act[] = [];
  private readonly underWay = new Map<Act, Promise<boolean>>();
  private readonly counts = { ...NO_ACTS };

  constructor(
    private readonly client: Client,
    private readonly eraseUrl: string,
  ) {}

  /** Sends the next request of a kind. Returns false when it failed, or when too few proofs are left to act on. */
  async sendNew(kind: ActKind): Promise<boolean> {
    const act = this.makers[kind](this.counts[kind]++);
    return act !== null && this.begin(act);
  }

  begin(act: Act): Promise<boolean> {
    this.sent.push(act);
    return this.send(act);
  }

  /** Never sends an acknowledged or pending act again, because a repeated request would create a second share token. */
  send(act: Act): Promise<boolean> {
    if (act.acknowledged) return Promise.resolve(true);
    const underWay = this.underWay.get(act);
    if (underWay !== undefined) return underWay;
    const sending = act
      .send()
      .catch(() => false)
      .finally(() => this.underWay.delete(act));
    this.underWay.set(act, sending);
    return sending;
  }

  /** Functions that create the nth request of each kind; null when too few proofs are left. */
  private readonly makers: Record<ActKind, (n: number) => Act | null> = {
    revocation: (n) => {
      const [single] = this.newest((one) => one.revoked.size === 0);
      // Two revocations of each kind in a row, so that both engines get each kind.
      const kind = ARTIFACT_KINDS[Math.floor(n / 2) % 4] ?? 'proof';
      return single === undefined ? null : new Revocation(this.client, n, single, kind);
    },
    package: (n) => {
      const members = this.newest((one) => !one.inPackage, MEMBERS);
      return members.length < MEMBERS ? null : new Package(this.client, n, members);
    },
    token: (n) => {
      const [single] = this.newest(() => true);
      if (single === undefined) return null;
      const made = this.sent.findLast((act) => act instanceof Package && act.acknowledged);
      const shared =
        n % 2 === 1 && made instanceof Package
          ? sharedPackage(made)
          : sharedArtifact(single, ARTIFACT_KINDS[n % 4] ?? 'proof');
      return new ShareToken(this.client, n, shared, n % 3 === 1 ? SHORT_TOKEN_MS : null);
    },
    'token end': (n) => {
      const token = this.sent.findLast(
        (act): act is ShareToken =>
          act instanceof ShareToken &&
          act.acknowledged &&
          !act.isRevoked &&
          act.lastsMs === null &&
          act.n % 2 === 0,
      );
      return token === undefined ? null : new TokenRevocation(this.client, n, token);
    },
    erasure: (n) => {
      // Erases in rotation: proofs without any other act, members of packages, and revoked proofs.
      const isWanted = ({ inPackage, revoked }: Single): boolean =>
        [!inPackage && revoked.size === 0, inPackage, revoked.size > 0][n % 3] === true;
      const [single] = this.newest((one) => one.open === 0 && isWanted(one));
      return single === undefined ? null : new Erasure(this.client, single, this.eraseUrl);
    },
  };

  /** The newest acknowledged admissions that are not erased and meet a condition. */
  private newest(isWanted: (single: Single) => boolean, most = 1): Single[] {
    const { admitted } = this.client.records;
    const found: Single[] = [];
    for (let at = admitted.length - 1; at >= 0 && found.length < most; at -= 1) {
      const single = admitted[at]!;
      if (!single.isErased && isWanted(single)) found.push(single);
    }
    return found;
  }
}
