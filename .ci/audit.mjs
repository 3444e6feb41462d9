// Queries the npm registry for known vulnerabilities. Exit code 0: none in production dependencies; 1: some;
// 3: the npm registry did not answer, so the result is unknown.
import { spawnSync } from 'node:child_process';

const { stdout, error } = spawnSync('npm', ['audit', '--json'], {
  encoding: 'utf8',
  timeout: 120_000,
});

function report() {
  if (error !== undefined) return null;
  try {
    const answer = JSON.parse(stdout);
    return typeof answer.auditReportVersion === 'number' ? answer : null;
  } catch {
    return null;
  }
}

/** The lockfile marks the packages that only development needs. */
async function isProduction(nodes) {
  const { readFile } = await import('node:fs/promises');
  const { packages } = JSON.parse(await readFile('package-lock.json', 'utf8'));
  return nodes.some((node) => !(packages[node]?.dev ?? packages[node]?.devOptional ?? false));
}

const found = report();
if (found === null) {
  console.log('audit: no answer from the npm registry');
  process.exitCode = 3;
} else {
  const grave = [];
  for (const { name, severity, nodes } of Object.values(found.vulnerabilities)) {
    const production = await isProduction(nodes);
    console.log(`audit: ${severity} in ${name}${production ? '' : ' (development only)'}`);
    if (production && severity !== 'info' && severity !== 'low') grave.push(name);
  }
  console.log(
    `audit: ${grave.length === 0 ? 'no known vulnerability in production dependencies' : grave.join(', ')}`,
  );
  if (grave.length > 0) process.exitCode = 1;
}
