import { readFileSync } from 'node:fs';
import { everything } from './everything.js';

const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'));
console.log(JSON.stringify({ node: process.version, ...(await everything(settings)) }));
