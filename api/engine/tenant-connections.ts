import { Limiter, type Limits } from '#runtime/concurrency/limiter';
import type { Pool } from '#sql/db/transaction';

export const TENANT_CONNECTIONS: Limits = {
  total: 8,
  perOwner: 2,
  maxWaiting: 1_000,
  timeoutMs: 2_000,
};

/** Connections for tenant requests except admissions; slow reads delay only their own tenant. */
export class TenantConnections {
  private readonly sql: Pool;
  private readonly limiter: Limiter;

  /** `total` must not exceed the pool's connections. */
  constructor({ sql, ...limits }: Limits & { sql: Pool }) {
    this.sql = sql;
    this.limiter = new Limiter(limits);
  }

  run<T>(tenantNo: number, work: (sql: Pool) => Promise<T>): Promise<T> {
    return this.limiter.run(tenantNo, () => work(this.sql));
  }
}
