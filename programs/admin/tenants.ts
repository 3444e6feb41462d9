import { TENANT_ID_PATTERN } from '#protocol/schemas/primitives';
import {
  createTenant,
  listLanes,
  listTenants,
  setAllowlisted,
  setLane,
  setRateLimit,
  setValidity,
} from '#sql/tenants/administration';
import { oneOf, secondsOrNone, UsageError, wholeNumber, type Command } from './command.js';

const ENVIRONMENTS = ['sandbox', 'live'] as const;
const MOST_PER_SECOND = 1_000_000;

export const tenantCommands: Command[] = [
  {
    name: 'tenant create',
    takes: ['<tenant_id>', '<sandbox|live>'],
    help: 'create a tenant, not yet allowlisted; its environment is permanent',
    example: 'tenant create acme sandbox',
    run: async (admin, given) => {
      const tenantId = given.argument(0);
      if (!TENANT_ID_PATTERN.test(tenantId)) {
        throw new UsageError(
          'a tenant id has 1 to 128 of A-Z a-z 0-9 _ . : -, and starts with a letter or digit',
        );
      }
      const environment = oneOf(given.argument(1), ENVIRONMENTS);
      const created = await admin.act((tx) => createTenant(tx, { tenantId, environment }));
      return { document: { tenant_id: tenantId, environment, created } };
    },
  },
  ...[true, false].map((allowlisted): Command => {
    const verb = allowlisted ? 'allow' : 'disallow';
    return {
      name: `tenant ${verb}`,
      takes: ['<tenant_id>'],
      help: allowlisted
        ? 'add a tenant to the allowlist'
        : 'remove a tenant from the allowlist; also applies to accepted admissions that are not yet signed',
      example: `tenant ${verb} acme`,
      run: async (admin, given) => {
        const tenantId = given.argument(0);
        await admin.act((tx) => setAllowlisted(tx, tenantId, allowlisted));
        return { document: { tenant_id: tenantId, allowlisted } };
      },
    };
  }),
  {
    name: 'tenant validity',
    takes: ['<tenant_id>', '<proof>', '<passport>', '<certificate>', '<trust>'],
    help: 'set how long artifacts of new admissions are valid, in seconds or none',
    example: 'tenant validity acme none none 31536000 7776000',
    run: async (admin, given) => {
      const tenantId = given.argument(0);
      const validity = {
        proof: secondsOrNone(given.argument(1)),
        passport: secondsOrNone(given.argument(2)),
        certificate: secondsOrNone(given.argument(3)),
        trust: secondsOrNone(given.argument(4)),
      };
      await admin.act((tx) => setValidity(tx, tenantId, validity));
      return { document: { tenant_id: tenantId, validity } };
    },
  },
  {
    name: 'tenant limit',
    takes: ['<tenant_id>', '<requests per second|none>'],
    help: "set the request rate limit of a tenant; none: the engines' RATE_LIMIT",
    example: 'tenant limit acme 200',
    run: async (admin, given) => {
      const tenantId = given.argument(0);
      const said = given.argument(1);
      const rateLimit = said === 'none' ? null : wholeNumber(said, 1, MOST_PER_SECOND);
      await admin.act((tx) => setRateLimit(tx, tenantId, rateLimit));
      return { document: { tenant_id: tenantId, rate_limit: rateLimit } };
    },
  },
  {
    name: 'tenant list',
    takes: [],
    help: 'list the tenants, with their settings and numbers of active keys',
    example: 'tenant list',
    run: async (admin) => {
      const tenants = await listTenants(await admin.database());
      return {
        document: tenants.map((tenant) => ({
          tenant_id: tenant.tenantId,
          environment: tenant.environment,
          allowlisted: tenant.allowlisted,
          rate_limit: tenant.rateLimit,
          keys: tenant.keys,
          validity: tenant.validity,
          created_at: tenant.createdAt,
        })),
      };
    },
  },
  ...[true, false].map((open): Command => {
    const verb = open ? 'open' : 'lock';
    return {
      name: `lane ${verb}`,
      takes: ['<sandbox|live>'],
      help: open
        ? 'open an environment for admissions'
        : 'lock an environment for admissions immediately; also applies to accepted admissions that are not yet signed',
      example: `lane ${verb} sandbox`,
      run: async (admin, given) => {
        const environment = oneOf(given.argument(0), ENVIRONMENTS);
        await admin.act((tx) => setLane(tx, environment, open));
        return { document: { environment, open } };
      },
    };
  }),
  {
    name: 'lane list',
    takes: [],
    help: 'list the environments, and whether they are open',
    example: 'lane list',
    run: async (admin) => {
      const lanes = await listLanes(await admin.database());
      return {
        document: lanes.map(({ environment, open, changedAt }) => ({
          environment,
          open,
          changed_at: changedAt,
        })),
      };
    },
  },
];
