import { SCHEMA } from '#protocol/schemas/ids';
import type { Audited } from '../audit.js';
import type { Client } from '../client.js';
import type { Single } from '../memory.js';
import type { World } from '../world.js';
import { isSaidAgain, type Act, type ExpectedStatus } from './act.js';
import { expectedOfAll } from './expected.js';

/** A package: requests with the same ordered members lead to the same package. */
export class Package implements Act {
  attempts = 0;
  packageId: string | null = null;
  private answer: string | null = null;

  constructor(
    private readonly client: Client,
    readonly n: number,
    readonly members: readonly Single[],
  ) {
    for (const member of members) {
      member.open += 1;
      member.inPackage = true;
    }
  }

  get what(): string {
    return `package ${this.packageId ?? ''} of ${this.members.map((one) => one.proofId).join(', ')}`;
  }

  get acknowledged(): boolean {
    return this.answer !== null;
  }

  async send(): Promise<boolean> {
    const url = this.client.urlFor(this);
    this.attempts += 1;
    const body = {
      schema_version: SCHEMA.packageRequest,
      proof_ids: this.members.map((member) => member.proofId),
    };
    const [status, text] = await this.client.call(
      `${url}/v1/packages`,
      'POST',
      JSON.stringify(body),
    );
    if (status !== 200 && status !== 201) {
      this.client.checkResponse(status, text, this.what);
      return false;
    }
    if (this.answer === null) for (const member of this.members) member.open -= 1;
    else if (this.answer !== text) this.client.memory.broken.push(`${this.what} is another now`);
    this.answer ??= text;
    this.packageId ??= (JSON.parse(text) as { package_id: string }).package_id;
    return true;
  }

  expectedStatuses(): ExpectedStatus[] {
    const status = expectedOfAll(this.members);
    return [{ path: `package/${this.packageId ?? ''}`, status }];
  }

  async audit(_world: World, found: Audited): Promise<void> {
    if (!(await isSaidAgain(this))) found.lost.push(`${this.what} is not the same again`);
    const url = this.client.urlFor(this);
    const [status, text] = await this.client.call(
      `${url}/v1/packages/${this.packageId ?? ''}`,
      'GET',
    );
    if (status !== 200 || text !== this.answer) found.lost.push(`${this.what} reads otherwise`);
  }
}
