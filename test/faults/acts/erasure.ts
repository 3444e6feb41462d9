import { runAdmin } from '#programs/admin/main';
import { ARTIFACT_KINDS } from '#protocol/status';
import { toUuid } from '#sql/db/columns';
import type { Audited } from '../audit.js';
import type { Client } from '../client.js';
import type { Single } from '../memory.js';
import type { World } from '../world.js';
import type { Act, ExpectedStatus } from './act.js';
import { expectedOf, pathOf } from './expected.js';

const CASE = 'CASE-7';

/** Output of `admin erase` for a new or an earlier erasure. */
interface Erased {
  erased: boolean;
  erased_at: string;
  reason_ref: string;
}

/** The erasure of an admission's payload, as an operator has it done. */
export class Erasure implements Act {
  private record: Erased | null = null;

  constructor(
    private readonly client: Client,
    private readonly single: Single,
    private readonly url: string,
  ) {
    single.isErased = true;
  }

  get what(): string {
    return `the erasure of ${this.single.proofId ?? ''}`;
  }

  get proofId(): string | null {
    return this.single.proofId;
  }

  get acknowledged(): boolean {
    return this.record !== null;
  }

  async send(): Promise<boolean> {
    const record = await this.erase();
    this.record ??= record;
    return record !== null;
  }

  expectedStatuses(): ExpectedStatus[] {
    return ARTIFACT_KINDS.map((kind) => ({
      path: pathOf(this.single, kind),
      status: expectedOf(this.single, kind),
    }));
  }

  async audit({ database }: World, found: Audited): Promise<void> {
    const again = await this.erase();
    if (again === null) found.lost.push(`${this.what} is not done again`);
    else if (again.erased || again.erased_at !== this.record?.erased_at) {
      found.lost.push(`${this.what} was not there any more`);
    }
    const proofId = this.single.proofId ?? '';
    const [row] = await database.sql<{ records: number; left: boolean }[]>`
      select (select count(*) from svc.audit where object = 'erasure' and operation = 'INSERT'
          and after ->> 'proof_id' = ${toUuid(proofId)})::int as records,
        i.request is not null or i.salt is not null or p.aep is not null
          or p.signature is not null as left
      from svc.intake i join svc.proof p using (proof_id) where proof_id = ${toUuid(proofId)}::uuid`;
    if (row?.records !== 1) found.double.push(`${this.what} has ${String(row?.records)} records`);
    if (row?.left !== false) found.lost.push(`${this.what} left some of it`);
    const url = this.client.urlFor(this.single);
    const [status] = await this.client.call(`${url}/v1/admissions/${proofId}`, 'GET');
    if (status !== 410) found.wrong.push(`its owner gets ${String(status)} after ${this.what}`);
  }

  private async erase(): Promise<Erased | null> {
    const proofId = this.single.proofId ?? '';
    let said = '';
    const code = await runAdmin(
      ['erase', proofId, '--reason', CASE, '--confirm', proofId, '--json'],
      { out: (text) => (said += text), err: () => undefined },
      { DATABASE_URL: this.url },
    );
    return code === 0 ? (JSON.parse(said) as Erased) : null;
  }
}
