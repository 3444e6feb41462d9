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
    help: 'create a tenant, not allowlisted yet; its environment never changes',
    example: 'tenant create acme sandbox',
    run: async (admin, given) => {
      const tenantId = given.argument(0);
      if (!TENANT_ID_PATTERN.test(tenantId)) {
        throw new UsageError(
          'a tenant id is 1 to 128 of A-Z a-z 0-9 _ . : -, beginning with a letter or digit',
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
        ? 'put a tenant on the allowlist'
        : 'take a tenant off the allowlist; holds for what is accepted and not yet signed, too',
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
    help: 'how long artifacts of admissions from now on assert, in seconds or none',
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
    help: "how many requests a second a tenant may make; none: the engines' RATE_LIMIT",
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
    help: 'every tenant, with its settings and how many of its keys are good',
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
        ? 'open the execution lane of an environment'
        : 'lock it; takes effect at once, also for what is accepted and not yet signed',
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
    help: 'the lanes, and whether they are open',
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
