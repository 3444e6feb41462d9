import type { ArtifactKind } from '#protocol/status';
import { SCHEMA } from '#protocol/schemas/ids';
import type { Audited } from '../audit.js';
import type { Client } from '../client.js';
import type { Single } from '../memory.js';
import type { World } from '../world.js';
import { isSaidAgain, type Act, type ExpectedStatus } from './act.js';
import { expectedOf, pathOf } from './expected.js';

/** The revocation of one artifact, which is in the log once and stays for the reason given first. */
export class Revocation implements Act {
  attempts = 0;
  /** Bytes of its first answer. */
  private answer: string | null = null;

  constructor(
    private readonly client: Client,
    readonly n: number,
    readonly single: Single,
    readonly kind: ArtifactKind,
  ) {
    single.revoked.add(kind);
    single.open += 1;
  }

  get what(): string {
    return `the revocation of the ${this.kind} of ${this.single.proofId ?? ''}`;
  }

  get acknowledged(): boolean {
    return this.answer !== null;
  }

  async send(): Promise<boolean> {
    const url = this.client.urlFor(this);
    this.attempts += 1;
    const [status, text] = await this.client.call(
      `${url}/v1/proofs/${this.single.proofId ?? ''}/revocations`,
      'POST',
      JSON.stringify({
        schema_version: SCHEMA.revocationRequest,
        artifact_kind: this.kind,
        reason: 'made by mistake',
        actor: 'operator',
      }),
    );
    if (status === 200 || status === 201) {
      if (this.answer === null) this.single.open -= 1;
      else if (this.answer !== text) this.client.memory.broken.push(`${this.what} is another now`);
      this.answer ??= text;
      return true;
    }
    if (status !== 202) this.client.checkResponse(status, text, this.what);
    return false;
  }

  expectedStatuses(): ExpectedStatus[] {
    const { single, kind } = this;
    return [{ path: pathOf(single, kind), status: expectedOf(single, kind) }];
  }

  async audit(_world: World, found: Audited): Promise<void> {
    if (!(await isSaidAgain(this))) found.lost.push(`${this.what} is not known any more`);
  }
}
