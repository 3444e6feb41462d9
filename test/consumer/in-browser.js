import { everything } from './everything.js';

globalThis.everything = everything;
